package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// answer reads what a script returned, element by element. It never fails in the
// middle: what is not as it should be sets bad.
type answer struct {
	err  error
	rest []any
	bad  bool
}

// decode reads the status of an answer. Whatever a server says, this and what
// follows it end with a value or an error.
func decode(key Key, raw any) answer {
	list, _ := raw.([]any)
	a := answer{rest: list}
	switch a.text() {
	case "ok":
	case "missing":
		a.err = ErrNotFound
	case "conflict":
		a.err = ErrConflict
	case "fenced":
		f := &Fenced{Key: key, Current: a.entry()}
		if a.err = f; a.bad {
			a.err = corrupt(key)
		}
	default:
		a.err = corrupt(key)
	}
	return a
}

func (a *answer) next() any {
	if len(a.rest) == 0 {
		a.bad = true
		return nil
	}
	v := a.rest[0]
	a.rest = a.rest[1:]
	return v
}

func (a *answer) text() string {
	s, ok := a.next().(string)
	a.bad = a.bad || !ok
	return s
}

// number reads decimal digits, or a number that the server counted itself.
func (a *answer) number() int64 {
	n, err := strconv.ParseInt(a.text(), 10, 64)
	a.bad = a.bad || err != nil || n < 0
	return n
}

func (a *answer) flag() bool {
	s := a.text()
	a.bad = a.bad || s != "0" && s != "1"
	return s == "1"
}

// list reads a list within the list.
func (a *answer) list() *answer {
	items, ok := a.next().([]any)
	a.bad = a.bad || !ok
	return &answer{rest: items}
}

// duration reads milliseconds; so many that they are no duration are bad.
func (a *answer) duration() time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	n := a.number()
	a.bad = a.bad || n > most
	return time.Duration(min(n, most)) * time.Millisecond
}

// entry reads what view of the scripts returns.
func (a *answer) entry() Entry {
	v := a.list()
	e := Entry{Holder: Holder{Pod: v.text(), Process: v.text(), Address: v.text()}}
	e.Epoch, e.Fence, e.Lease = v.number(), v.number(), v.duration()
	e.Draining, e.Version = v.flag(), v.number()
	a.bad = a.bad || v.bad
	return e
}

func (a *answer) value(version int64) []byte {
	s := a.text()
	if version == 0 {
		return nil
	}
	return []byte(s)
}

func (a *answer) turns() []Turn {
	list := a.list()
	var turns []Turn
	for len(list.rest) > 0 {
		one := list.list()
		fingerprint, age, delivered, body := one.text(), one.duration(), one.flag(), one.text()
		var t Turn
		if one.bad || json.Unmarshal([]byte(body), &t) != nil || t.Fingerprint != fingerprint || !t.sound() {
			a.bad = true
			return nil
		}
		t.Age, t.Delivered = age, delivered
		turns = append(turns, t)
	}
	a.bad = a.bad || list.bad
	slices.SortFunc(turns, newestFirst)
	return turns
}

// sound says whether a record that was read can be acted upon.
func (t Turn) sound() bool {
	switch t.State {
	case TurnSubmitted, TurnAcknowledged, TurnUnknown, TurnCompleted, TurnIncomplete, TurnFailed, TurnAbandoned:
		return t.Attempt > 0
	default:
		return false
	}
}

// decodeTranscript reads a list whose first element is "attempt bytes".
func decodeTranscript(key Key, list []string) ([][]byte, error) {
	if len(list) == 0 {
		return nil, ErrNotFound
	}
	var attempt, size int
	if n, err := fmt.Sscanf(list[0], "%d %d", &attempt, &size); n != 2 || err != nil {
		return nil, corrupt(key)
	}
	events := make([][]byte, len(list)-1)
	for i, e := range list[1:] {
		events[i] = []byte(e)
		size -= len(e)
	}
	if size != 0 {
		return nil, corrupt(key)
	}
	return events, nil
}

func corrupt(key Key) error {
	return fmt.Errorf("%w: %w: key %s", ErrUnavailable, ErrCorrupt, key.short())
}

// named adds the key to an error that says that its value cannot be read. A script
// never answers with nothing.
func named(err error, key Key) error {
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNotFound) {
		return corrupt(key)
	}
	return err
}

// advice is what a server's refusal means for who runs it, by how the refusal
// begins.
var advice = []struct{ prefix, what string }{
	{"NOAUTH", "it asks for a password: set spec.store.redis.authSecretRef"},
	{"ERR Protocol error: unauthenticated", "it asks for a password: set spec.store.redis.authSecretRef"},
	{"WRONGPASS", "it refuses the password: correct the Secret of spec.store.redis.authSecretRef"},
	{"NOPERM", "the default user may not run scripts: give it the commands @scripting, @read and @write"},
	{"LOADING", "it is still loading its data: it answers by itself when it is done"},
	{"READONLY", "the address leads to a replica: give the address of the primary"},
	{"MASTERDOWN", "the address leads to a replica without its primary: give the address of the primary"},
	{"OOM", "it is out of memory: raise its maxmemory"},
	{"MISCONF", "it cannot save its data and refuses writes: make room on its disk, or turn snapshots off"},
	{"NOREPLICAS", "it has too few replicas to accept writes: see its min-replicas-to-write"},
	{"CLUSTERDOWN", "a part of the cluster is down: see CLUSTER INFO of its nodes"},
	{"BUSY", "a script of somebody else blocks it: see SCRIPT KILL"},
	{"ERR max number of clients", "it has too many connections: raise its maxclients"},
	{"ERR This instance has cluster support disabled", "several addresses must be nodes of a Redis Cluster: give one"},
	{"ERR AUTH", "it wants no password: remove spec.store.redis.authSecretRef"},
	{"ERR unknown command", "it cannot run scripts: use Redis from 6.2 on, or Valkey"},
}

// explained makes an error of the contract out of what the library says. No
// error of the library holds a password or a value.
func explained(err error) error {
	var answered redis.Error
	var record tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redis.Nil):
		return ErrNotFound
	case errors.As(err, &record):
		return because("it does not speak TLS: set spec.store.redis.tls to Disabled, or give its port for TLS", err)
	case errors.As(err, &certificate), errors.As(err, new(x509.UnknownAuthorityError)):
		return because("its certificate is not trusted: it must be for the host of the address, and from a known authority", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case errors.As(err, &answered):
		return refusal(err, answered.Error())
	default:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
}

func because(what string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, what, err)
}

func refusal(err error, text string) error {
	for _, a := range advice {
		if strings.HasPrefix(text, a.prefix) || strings.Contains(text, "-"+a.prefix) {
			return because(a.what, err)
		}
	}
	if strings.HasPrefix(text, "WRONGTYPE") || strings.Contains(text, "WRONGTYPE") || strings.Contains(text, "user_script") {
		return fmt.Errorf("%w: %w: %w", ErrUnavailable, ErrCorrupt, err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
