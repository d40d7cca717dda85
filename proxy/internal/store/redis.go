package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Times and sizes of the connections to Redis.
const (
	// redisTimeout bounds one operation: a connection, a login and an answer.
	redisTimeout = 2 * time.Second
	// redisStep bounds each of its steps.
	redisStep = time.Second
	// redisPool is how many connections a process opens at most, to each server;
	// redisIdle how many it keeps.
	redisPool = 16
	redisIdle = 4
	// redisBuffer is the size of the two buffers of a connection.
	redisBuffer = 8 << 10
)

// RedisOptions say where the store is.
type RedisOptions struct {
	// Addresses are host:port. One is a server, or the common name of the nodes of
	// a Redis Cluster: whichever it is shows when it answers. Several are nodes of
	// one Redis Cluster, from which the others are learned.
	Addresses []string
	// Password of the default user, until SetPassword; empty = none.
	Password string
	// TLS encrypts; the server's certificate must be for the host of its address
	// and be signed by one of RootCAs, nil = those of the system.
	TLS     bool
	RootCAs *x509.CertPool
	// Namespace and Bridge keep the keys of bridges apart that share a server.
	Namespace, Bridge string
}

// redisStore is a Store in a server that speaks Redis' protocol: Redis from 6.2
// on, or Valkey. The server should not evict keys (maxmemory-policy noeviction or
// volatile-ttl): an owner whose entry is evicted loses its key.
type redisStore struct {
	opts   RedisOptions
	prefix string
	client atomic.Pointer[redisClient]
	// password is what the next connection logs in with.
	password atomic.Pointer[string]
}

type redisClient struct {
	redis.UniversalClient
	cluster bool
}

// NewRedis makes a Store on a server that speaks Redis' protocol. It does not
// connect: a server that is away shows as ErrUnavailable, and is used as soon as
// it is back. Each operation takes 2 seconds at most and is tried once.
func NewRedis(o RedisOptions) (Backend, error) {
	if len(o.Addresses) == 0 || o.Namespace == "" || o.Bridge == "" {
		return nil, errors.New("a Redis store needs an address, and namespace and name of the bridge")
	}
	redis.SetLogger(quiet{})
	// The number is the version of the layout: versions of the proxy that do not
	// understand each other's values use different keys.
	r := &redisStore{opts: o, prefix: "causeway:1:" + o.Namespace + "/" + o.Bridge + ":"}
	r.password.Store(&o.Password)
	r.opts.Password = ""
	r.client.Store(r.open(len(o.Addresses) > 1))
	return r, nil
}

// quiet drops what the library would print past our log; each operation returns
// its error.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func (r *redisStore) open(cluster bool) *redisClient {
	o := &redis.UniversalOptions{
		Addrs: r.opts.Addresses, CredentialsProvider: r.credentials, Protocol: 2, DisableIdentity: true,
		DialTimeout: redisStep, ReadTimeout: redisStep, WriteTimeout: redisStep, PoolTimeout: redisStep,
		ContextTimeoutEnabled: true, MaxRetries: -1, // tries are the caller's business
		PoolSize: redisPool, MaxIdleConns: redisIdle, ReadBufferSize: redisBuffer, WriteBufferSize: redisBuffer,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if r.opts.TLS {
		o.TLSConfig = &tls.Config{RootCAs: r.opts.RootCAs, MinVersion: tls.VersionTLS12}
	}
	if cluster {
		c := o.Cluster()
		c.DialerRetries, c.DialerRetryTimeout = 1, time.Millisecond
		return &redisClient{redis.NewClusterClient(c), true}
	}
	c := o.Simple()
	c.DialerRetries, c.DialerRetryTimeout = 1, time.Millisecond
	return &redisClient{redis.NewClient(c), false}
}

// SetPassword is for the connections that are opened from now on: a server that
// gets another password goes on with those that it has.
func (r *redisStore) SetPassword(password string) { r.password.Store(&password) }

func (r *redisStore) credentials() (user, password string) { return "", *r.password.Load() }

func (r *redisStore) Close() error { return r.client.Load().Close() }

// Names of what belongs to a key. The part in braces decides the cluster slot.
func (r *redisStore) entry(k Key) string { return r.prefix + "{" + string(k) + "}:entry" }
func (r *redisStore) turns(k Key) string { return r.prefix + "{" + string(k) + "}:turns" }
func (r *redisStore) transcript(k Key, fingerprint string) string {
	return r.prefix + "{" + string(k) + "}:events:" + fingerprint
}
func (r *redisStore) alias(name string) string { return r.prefix + "alias:" + name }

func (r *redisStore) Claim(ctx context.Context, key Key, me Holder, fence int64, lease time.Duration) (Claimed, error) {
	a, err := r.run(ctx, key, scriptClaim, []string{r.entry(key), r.turns(key)},
		me.Pod, me.Process, me.Address, fence, milliseconds(lease), milliseconds(fenceMemory))
	if err != nil {
		return Claimed{}, err
	}
	c := Claimed{Held: Held{Key: key, Holder: me, Epoch: a.number(), Fence: fence}, Before: a.entry()}
	c.Before.Value = a.value(c.Before.Version)
	c.Turns = a.turns()
	if a.bad {
		return Claimed{}, corrupt(key)
	}
	return c, nil
}

// writer starts the arguments of every write.
func writer(h Held, more ...any) []any {
	return append([]any{h.Holder.Pod, h.Holder.Process, h.Epoch, h.Fence, milliseconds(fenceMemory)}, more...)
}

func (r *redisStore) Drain(ctx context.Context, h Held) error {
	_, err := r.run(ctx, h.Key, scriptDrain, []string{r.entry(h.Key)}, writer(h)...)
	return err
}

func (r *redisStore) Release(ctx context.Context, h Held) error {
	_, err := r.run(ctx, h.Key, scriptRelease, []string{r.entry(h.Key)}, writer(h)...)
	return err
}

func (r *redisStore) Save(ctx context.Context, h Held, version int64, value []byte, life time.Duration) error {
	_, err := r.run(ctx, h.Key, scriptSave, []string{r.entry(h.Key)}, writer(h, version, value, milliseconds(life))...)
	return err
}

func (r *redisStore) Look(ctx context.Context, key Key) (Entry, error) {
	a, err := r.run(ctx, key, scriptLook, []string{r.entry(key)})
	if err != nil {
		return Entry{}, err
	}
	e := a.entry()
	e.Value = a.value(e.Version)
	if a.bad {
		return Entry{}, corrupt(key)
	}
	return e, nil
}

func (r *redisStore) PutAlias(ctx context.Context, name string, value []byte, life time.Duration) error {
	return r.try(ctx, func(ctx context.Context, c redis.UniversalClient) error {
		return c.Set(ctx, r.alias(name), value, time.Duration(milliseconds(life))*time.Millisecond).Err()
	})
}

func (r *redisStore) Alias(ctx context.Context, name string) ([]byte, error) {
	var value []byte
	err := r.try(ctx, func(ctx context.Context, c redis.UniversalClient) (err error) {
		value, err = c.Get(ctx, r.alias(name)).Bytes()
		return err
	})
	return value, err
}

func (r *redisStore) PutTurn(ctx context.Context, h Held, t Turn, life time.Duration) error {
	// Whether it was delivered is compared, and kept, on its own.
	body, err := json.Marshal(undelivered(t))
	if err != nil {
		return corrupt(h.Key) // text and numbers always marshal
	}
	_, err = r.run(ctx, h.Key, scriptPutTurn, r.names(h.Key, t.Fingerprint), writer(h,
		t.Fingerprint, t.Attempt, t.State.stage(), t.Delivered, body, milliseconds(life), MaxTurns)...)
	return err
}

func (r *redisStore) DropTurn(ctx context.Context, h Held, fingerprint string, attempt int) error {
	_, err := r.run(ctx, h.Key, scriptDropTurn, r.names(h.Key, fingerprint), writer(h, fingerprint, attempt)...)
	return err
}

func (r *redisStore) AppendEvents(
	ctx context.Context, h Held, fingerprint string, attempt, from int, events [][]byte, life time.Duration,
) error {
	args := writer(h, fingerprint, attempt, from, milliseconds(life), MaxTranscript)
	for _, e := range events {
		args = append(args, e)
	}
	_, err := r.run(ctx, h.Key, scriptAppend, r.names(h.Key, fingerprint), args...)
	return err
}

func (r *redisStore) names(key Key, fingerprint string) []string {
	return []string{r.entry(key), r.turns(key), r.transcript(key, fingerprint)}
}

func (r *redisStore) Transcript(ctx context.Context, key Key, fingerprint string) ([][]byte, error) {
	var list []string
	err := r.try(ctx, func(ctx context.Context, c redis.UniversalClient) (err error) {
		list, err = c.LRange(ctx, r.transcript(key, fingerprint), 0, -1).Result()
		return err
	})
	if err != nil {
		return nil, named(err, key)
	}
	return decodeTranscript(key, list)
}

// Renew is one pipeline: one way to the server and back for all keys.
func (r *redisStore) Renew(ctx context.Context, keys []Held, lease time.Duration) []error {
	errs := make([]error, len(keys))
	for i, a := range r.runAll(ctx, scriptRenew, len(keys), func(i int) (Key, []string, []any) {
		return keys[i].Key, []string{r.entry(keys[i].Key)}, writer(keys[i], milliseconds(lease))
	}) {
		errs[i] = a.err
	}
	return errs
}

// runAll runs a script n times in one pipeline, each with a key and arguments of
// its own.
func (r *redisStore) runAll(ctx context.Context, s *redis.Script, n int, of func(i int) (Key, []string, []any)) []answer {
	got := make([]answer, n)
	answers := make([]*redis.Cmd, n)
	rest := make([]int, n) // without an answer so far
	for i := range rest {
		rest[i] = i
	}
	// The second round is for servers that do not know the script yet.
	for _, run := range []func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd{s.EvalSha, s.Eval} {
		var sent error
		_ = r.try(ctx, func(ctx context.Context, c redis.UniversalClient) error {
			pipe := c.Pipeline()
			for _, i := range rest {
				_, keys, args := of(i)
				answers[i] = run(ctx, pipe, keys, args...)
			}
			_, sent = pipe.Exec(ctx)
			return onlyMoved(sent) // the others are looked for in the answers
		})
		rest = slices.DeleteFunc(rest, func(i int) bool {
			raw, failed := answers[i].Result()
			if failed == nil && raw == nil {
				failed = sent // there was no connection to send it on
			}
			key, _, _ := of(i)
			switch {
			case redis.HasErrorPrefix(failed, "NOSCRIPT"):
				got[i].err = explained(failed)
				return false
			case failed != nil:
				got[i].err = named(explained(failed), key)
			default:
				got[i] = decode(key, raw)
			}
			return true
		})
		if len(rest) == 0 {
			break
		}
	}
	return got
}

// milliseconds rounds up: a life of nothing is no life.
func milliseconds(d time.Duration) int64 {
	return max(int64((d+time.Millisecond-1)/time.Millisecond), 1)
}

// run runs a script about a key and reads its answer.
func (r *redisStore) run(ctx context.Context, key Key, s *redis.Script, keys []string, args ...any) (answer, error) {
	var raw any
	err := r.try(ctx, func(ctx context.Context, c redis.UniversalClient) (err error) {
		raw, err = s.Run(ctx, c, keys, args...).Result()
		return err
	})
	if err != nil {
		return answer{}, named(err, key)
	}
	a := decode(key, raw)
	return a, a.err
}

// try does something with the server, within its time. A server that turns out to
// be a node of a cluster is spoken to as such from then on.
func (r *redisStore) try(ctx context.Context, do func(context.Context, redis.UniversalClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	c := r.client.Load()
	err := do(ctx, c)
	if onlyMoved(err) != nil && !c.cluster {
		next := r.open(true)
		if r.client.CompareAndSwap(c, next) {
			c.Close()
		} else {
			next.Close()
			next = r.client.Load()
		}
		err = do(ctx, next)
	}
	return explained(err)
}

// onlyMoved keeps an error if it says that another node of a cluster has the key.
func onlyMoved(err error) error {
	if _, moved := redis.IsMovedError(err); moved {
		return err
	}
	return nil
}
