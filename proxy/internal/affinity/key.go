package affinity

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/textproto"
	"regexp"
	"strings"
	"unsafe"
)

// Digest is a SHA-256.
type Digest [sha256.Size]byte

// Key names a session. Two requests belong to the same session exactly if their
// keys are equal; the client's scope is part of the digest, so that no client
// can name another's session.
type Key struct {
	Kind   Kind
	Digest Digest
}

// String is how a key is shown: its kind and 12 hex digits, never the value
// that a client sent.
func (k Key) String() string { return k.Kind.String() + ":" + k.Short() }

// Short is the first 12 hex digits.
func (k Key) Short() string { return hex.EncodeToString(k.Digest[:6]) }

// Source is what a key is derived from.
type Source struct {
	// Client is the scope: the name of the client's key.
	Client string
	Header map[string][]string
	// PromptCacheKey is the body's prompt_cache_key, trimmed; empty = absent.
	PromptCacheKey string
	// Socket names the client's own connection, where that is a conversation: a
	// WebSocket; empty = it is none.
	Socket string
	// RequestID makes a key of its own where nothing else does.
	RequestID string
}

// TurnStateHeader carries the continuation token of a turn.
const TurnStateHeader = "X-Codex-Turn-State"

// processSessionHeaders name the process session, first non-blank wins.
// Underscores survive only where no intermediary drops them.
var processSessionHeaders = []string{"Session_id", "Session-Id", "X-Codex-Session-Id", "X-Codex-Conversation-Id"}

// Derive returns the key of a request: the first of turn state, thread, process
// session, connection, prompt cache key and request id. A turn that another replica sends
// comes with its key.
func Derive(s Source) Key {
	if token := TurnState(s.Header); token != "" {
		return TurnStateKey(s.Client, token)
	}
	return DeriveWithoutTurnState(s)
}

// DeriveWithoutTurnState is the rest of the precedence: what a request with a
// turn state that nobody knows belongs to.
func DeriveWithoutTurnState(s Source) Key {
	process := ProcessSession(s.Header)
	if thread := trimmed(s.Header, "Thread-Id"); thread != "" {
		// Siblings share the process header, so it only narrows the thread here
		// and is no key of its own.
		if process == "" {
			return newKey(KindThread, s.Client, "thread_only", thread)
		}
		return newKey(KindThread, s.Client, "process_thread", process, thread)
	}
	if process != "" {
		if s.PromptCacheKey != "" {
			return newKey(KindSession, s.Client, process, s.PromptCacheKey)
		}
		return newKey(KindSession, s.Client, process)
	}
	if s.Socket != "" {
		return SocketKey(s.Client, s.Socket)
	}
	if s.PromptCacheKey != "" {
		return newKey(KindPromptCache, s.Client, s.PromptCacheKey)
	}
	return newKey(KindRequest, s.Client, s.RequestID)
}

// SocketKey names what nothing but a client's connection does. It has no process session,
// which other keys of its kind have.
func SocketKey(client, socket string) Key { return newKey(KindSession, client, "", socket) }

// OfSocket says whether a key names nothing but the client's connection, so that
// whatever else is known of a turn counts for more.
func (s Source) OfSocket(k Key) bool { return s.Socket != "" && k == SocketKey(s.Client, s.Socket) }

// TurnStateKey is the key that a token names.
func TurnStateKey(client, token string) Key { return newKey(KindTurnState, client, token) }

// Lane derives the key of a lane beside parent for one request.
func Lane(kind Kind, parent Key, scope string) Key {
	return newKey(kind, parent.Kind.String(), string(parent.Digest[:]), scope)
}

// TurnState is the client's continuation token; empty = absent.
func TurnState(h map[string][]string) string { return trimmed(h, TurnStateHeader) }

// ProcessSession is the client's process session; empty = absent.
func ProcessSession(h map[string][]string) string {
	for _, name := range processSessionHeaders {
		if v := trimmed(h, name); v != "" {
			return v
		}
	}
	return ""
}

var proxyTurnState = regexp.MustCompile(`^(http_)?turn_[0-9a-f]{32}$`)

// ProxyMade says whether a turn state has the form of the proxy's own tokens.
func ProxyMade(token string) bool { return proxyTurnState.MatchString(token) }

func trimmed(h map[string][]string, name string) string {
	for _, v := range h[textproto.CanonicalMIMEHeaderKey(name)] {
		if v = strings.TrimSpace(v); v != "" {
			return v
		}
	}
	return ""
}

// newKey hashes length-framed parts behind the kind, so that no value of one
// kind can equal a value of another.
func newKey(kind Kind, client string, parts ...string) Key {
	h := sha256.New()
	h.Write([]byte{byte(kind)})
	frame(h, client)
	for _, p := range parts {
		frame(h, p)
	}
	k := Key{Kind: kind}
	h.Sum(k.Digest[:0])
	return k
}

type writer interface{ Write([]byte) (int, error) }

func frame(w writer, s string) {
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(s)))
	_, _ = w.Write(size[:])
	_, _ = w.Write(unsafe.Slice(unsafe.StringData(s), len(s))) // a hash only reads
}

// Name is the whole key as text: two hex digits of the kind and 64 of the
// digest. It names the key outside the process.
func (k Key) Name() string {
	return hex.EncodeToString(append([]byte{byte(k.Kind)}, k.Digest[:]...))
}

// ParseKey reads what Name wrote.
func ParseKey(name string) (Key, bool) {
	raw, err := hex.DecodeString(name)
	if err != nil || len(raw) != 1+sha256.Size || int(raw[0]) >= len(kindNames) {
		return Key{}, false
	}
	k := Key{Kind: Kind(raw[0])}
	copy(k.Digest[:], raw[1:])
	return k, true
}

// MarshalText writes a digest as hex digits.
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) != 2*sha256.Size {
		return errors.New("a digest has 64 hex digits")
	}
	if _, err := hex.Decode(d[:], text); err != nil {
		return fmt.Errorf("a digest has 64 hex digits: %w", err)
	}
	return nil
}
