package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// relay is a network between a store and its server that a test can stop. What
// was on its way when it stopped arrives when it goes on.
type relay struct {
	target string
	l      net.Listener

	mu    sync.Mutex
	goes  chan struct{} // closed while it forwards
	conns []net.Conn
}

func startRelay(t testing.TB, target string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{target: target, l: l, goes: make(chan struct{})}
	close(r.goes)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(c)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		r.resume()
		r.cut()
	})
	return r
}

func (r *relay) serve(c net.Conn) {
	r.wait()
	s, err := net.Dial("unix", r.target)
	if err != nil {
		c.Close()
		return
	}
	r.mu.Lock()
	r.conns = append(r.conns, c, s)
	r.mu.Unlock()
	go r.pump(s, c)
	r.pump(c, s)
}

func (r *relay) pump(to, from net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		r.wait()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				n = 0
			}
		}
		if err != nil || n == 0 {
			// What was read before the end has been forwarded.
			if c, ok := to.(interface{ CloseWrite() error }); ok && errors.Is(err, io.EOF) {
				_ = c.CloseWrite()
			} else {
				to.Close()
			}
			return
		}
	}
}

func (r *relay) wait() {
	r.mu.Lock()
	goes := r.goes
	r.mu.Unlock()
	<-goes
}

func (r *relay) pause() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.goes = make(chan struct{})
}

func (r *relay) resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.goes:
	default:
		close(r.goes)
	}
}

func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
}

// behind is a store that reaches its server through a relay.
func behind(t *testing.T) (*server, *relay, *redisStore) {
	t.Helper()
	s := startServer(t)
	r := startRelay(t, s.addr)
	return s, r, openRedis(t, RedisOptions{Addresses: []string{r.l.Addr().String()}})
}

// eventually waits for something that has no signal of its own.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !is(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

func claimed(t *testing.T, s Store, key Key) Held {
	t.Helper()
	c, err := s.Claim(t.Context(), key, podA, 0, lease)
	if err != nil {
		t.Fatal(err)
	}
	return c.Held
}

func TestNothingBlocksWhileRedisIsPaused(t *testing.T) {
	_, r, s := behind(t)
	h := claimed(t, s, key)
	r.pause()
	ctx := t.Context() // without a deadline of its own
	var all sync.WaitGroup
	for name, call := range map[string]func() error{
		"Claim":        func() error { _, err := s.Claim(ctx, "other", podA, 0, lease); return err },
		"Renew":        func() error { return s.Renew(ctx, []Held{h}, lease)[0] },
		"Drain":        func() error { return s.Drain(ctx, h) },
		"Release":      func() error { return s.Release(ctx, h) },
		"Save":         func() error { return s.Save(ctx, h, 1, nil, life) },
		"Look":         func() error { _, err := s.Look(ctx, key); return err },
		"PutAlias":     func() error { return s.PutAlias(ctx, "n", nil, life) },
		"Alias":        func() error { _, err := s.Alias(ctx, "n"); return err },
		"PutTurn":      func() error { return s.PutTurn(ctx, h, Turn{Fingerprint: "f", Attempt: 1, State: TurnUnknown}, life) },
		"DropTurn":     func() error { return s.DropTurn(ctx, h, "f", 1) },
		"AppendEvents": func() error { return s.AppendEvents(ctx, h, "f", 1, 0, raw("e"), life) },
		"Transcript":   func() error { _, err := s.Transcript(ctx, key, "f"); return err },
		"short Look": func() error {
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			begun := time.Now()
			_, err := s.Look(ctx, key)
			if took := time.Since(begun); took > time.Second {
				t.Errorf("the caller's 50 ms took %s", took)
			}
			return err
		},
	} {
		all.Go(func() {
			begun := time.Now()
			if err := call(); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(begun); took > redisTimeout+time.Second {
				t.Errorf("%s took %s", name, took)
			}
		})
	}
	all.Wait()
	r.resume()
	eventually(t, "an answer", func() bool { _, err := s.Look(ctx, key); return !errors.Is(err, ErrUnavailable) })
}

func TestOutboxDrainsInOrderAfterRedisWasPaused(t *testing.T) {
	srv, r, s := behind(t)
	var fenced []Held
	o := NewOutbox(s, OutboxOptions{Fenced: func(h Held, _ *Fenced) { fenced = append(fenced, h) }})
	defer o.Close()
	const keys, rounds = 20, 6
	held := make([]Held, keys)
	for i := range held {
		held[i] = claimed(t, s, Key(fmt.Sprint("k", i)))
	}
	write := func(round int) {
		for i, h := range held {
			o.Save(h, int64(round), fmt.Append(nil, "v", round), life)
			o.AppendEvents(h, "f", 1, 2*(round-1), raw(fmt.Sprint(i, "-", round), "x"), life)
			o.PutTurn(h, Turn{Fingerprint: "f", ID: fmt.Sprint(round), State: TurnAcknowledged, Attempt: 1}, life)
			o.PutTurn(h, Turn{Fingerprint: fmt.Sprint("g", round), State: TurnSubmitted, Attempt: 1}, life)
			o.PutAlias(fmt.Sprint("alias", i), fmt.Append(nil, round), life)
		}
	}
	write(1)
	eventually(t, "the first round", func() bool { return o.Len() == 0 })
	begun := time.Now()
	for round := 2; round < rounds; round++ {
		r.pause()
		write(round)
		eventually(t, "the first failure", func() bool { return !o.Healthy() })
		if o.Len() == 0 || o.Age() == 0 {
			t.Fatal("nothing waits")
		}
		r.resume() // writes of the last round are still on their way, in dead connections
		if round == 3 {
			r.cut()
		}
		write(round) // again
	}
	write(rounds)
	if err := o.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !o.Healthy() || o.Age() != 0 || len(fenced) != 0 || o.Counts().Refused != 0 {
		t.Fatalf("healthy %t, fenced %v, %+v after %s", o.Healthy(), fenced, o.Counts(), time.Since(begun))
	}
	direct := openRedis(t, RedisOptions{Addresses: []string{srv.addr}})
	direct.prefix = s.prefix
	for i, h := range held {
		// The next process of the pod finds all of it.
		c, err := direct.Claim(t.Context(), h.Key, podAAgain, 0, lease)
		if err != nil || c.Before.Version != rounds || string(c.Before.Value) != fmt.Sprint("v", rounds) || len(c.Turns) != rounds+1 {
			t.Fatalf("%+v, %v", c, err)
		}
		var want []string
		for round := range rounds {
			want = append(want, fmt.Sprint(i, "-", round+1), "x")
		}
		events, err := direct.Transcript(t.Context(), h.Key, "f")
		if err != nil {
			t.Fatal(err)
		}
		equal(t, texts(events), want)
		alias, err := direct.Alias(t.Context(), fmt.Sprint("alias", i))
		if err != nil || string(alias) != fmt.Sprint(rounds) {
			t.Fatalf("alias %q, %v", alias, err)
		}
	}
}

func TestRedisThatComesBackEmpty(t *testing.T) {
	srv, r, s := behind(t)
	told := make(chan Held, 10)
	o := NewOutbox(s, OutboxOptions{Fenced: func(h Held, f *Fenced) {
		if f.Current.Holder != (Holder{}) {
			t.Errorf("fenced by %+v", f.Current)
		}
		told <- h
	}})
	defer o.Close()
	old := claimed(t, s, key)
	o.Save(old, 1, []byte("one"), life)
	if err := o.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}

	srv.kill()
	r.cut()
	o.Save(old, 2, []byte("two"), life)
	o.PutAlias("n", []byte("v"), life)
	eventually(t, "the failure", func() bool { return !o.Healthy() })
	srv.start()
	eventually(t, "the end of the outage", func() bool { return o.Healthy() && o.Len() == 0 })
	if h := <-told; h != old {
		t.Fatalf("told of %+v", h)
	}
	if value, err := s.Alias(t.Context(), "n"); err != nil || string(value) != "v" {
		t.Fatalf("alias %q, %v", value, err)
	}
	// A renewal meets a server that knows neither key nor script.
	var f *Fenced
	for _, err := range s.Renew(t.Context(), []Held{old, {Key: "other", Holder: podA, Epoch: 1}}, lease) {
		if !errors.As(err, &f) {
			t.Fatalf("renewed: %v", err)
		}
	}
	next := claimed(t, s, key)
	if next.Epoch <= old.Epoch {
		t.Fatalf("epoch %d after %d", next.Epoch, old.Epoch)
	}
	o.Save(next, 3, []byte("three"), life)
	if err := o.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Look(t.Context(), key); err != nil || string(e.Value) != "three" {
		t.Fatalf("%+v, %v", e, err)
	}
	if err := s.client.Load().ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for i, err := range s.Renew(t.Context(), []Held{next, old}, lease) {
		if (err == nil) != (i == 0) {
			t.Fatalf("%d: %v", i, err)
		}
	}
}

func TestKeeperThroughAPauseOfRedis(t *testing.T) {
	_, r, s := behind(t)
	lost := make(chan error, 1)
	k := NewKeeper(s, KeeperOptions{Lease: 4 * time.Second, Every: 500 * time.Millisecond, Lost: func(_ Held, cause error) { lost <- cause }})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go k.Run(ctx)
	started := k.Now()
	c, err := s.Claim(ctx, key, podA, 0, k.Lease())
	if err != nil {
		t.Fatal(err)
	}
	l := k.Hold(c, started)
	r.pause()
	begun := time.Now()
	eventually(t, "the end of the lease", func() bool { return !l.Valid() })
	if took := time.Since(begun); took > 4*time.Second+100*time.Millisecond {
		t.Fatalf("valid for %s without an answer", took)
	}
	if cause := <-lost; !errors.Is(cause, ErrLapsed) {
		t.Fatal(cause)
	}
	r.resume()
	// Only now may another have it, by the server's clock.
	eventually(t, "another owner", func() bool {
		_, err := s.Claim(ctx, key, podB, 0, lease)
		return err == nil
	})
}

// stub is a server that answers everything with one line.
func stub(t *testing.T, line string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buffer := make([]byte, 64<<10)
				for {
					n, err := c.Read(buffer)
					if err != nil {
						return
					}
					// One answer for each command, however they are cut: the
					// client sends one after the other but for pipelines.
					commands := max(strings.Count("\r\n"+string(buffer[:n]), "\r\n*"), 1)
					if _, err := io.WriteString(c, strings.Repeat(line+"\r\n", commands)); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	const secret = "CANARY-password"
	for _, tc := range []struct{ line, want string }{
		{"-NOAUTH Authentication required.", "set spec.store.redis.authSecretRef"},
		{"-WRONGPASS invalid username-password pair or user is disabled.", "correct the Secret"},
		{"-ERR AUTH <password> called without any password configured for the default user.", "remove spec.store"},
		{"-NOPERM this user has no permissions to run the 'evalsha' command", "@scripting"},
		{"-LOADING Redis is loading the dataset in memory", "still loading"},
		{"-READONLY You can't write against a read only replica.", "the primary"},
		{"-READONLY You can't write against a read only replica. script: 35a, on @user_script:3.", "the primary"},
		{"-ERR Error running script (call to f_35a): @user_script:3: -OOM command not allowed when used memory > 'maxmemory'.", "maxmemory"},
		{"-OOM command not allowed when used memory > 'maxmemory'.", "maxmemory"},
		{"-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", "its disk"},
		{"-CLUSTERDOWN The cluster is down", "CLUSTER INFO"},
		{"-BUSY Redis is busy running a script.", "SCRIPT KILL"},
		{"-ERR max number of clients reached", "maxclients"},
		{"-ERR unknown command 'evalsha'", "cannot run scripts"},
		{"-ERR something else", "something else"},
		{"+OK", "parse"},
		{"$-1", "cannot be read"},
		{":1", "parse"},
		{"*0", "cannot be read"},
		{"HTTP/1.1 400 Bad Request", "HTTP/1.1 400"},
	} {
		t.Run(tc.line, func(t *testing.T) {
			s := openRedis(t, RedisOptions{Addresses: []string{stub(t, tc.line)}, Password: secret})
			h := Held{Key: key, Holder: podA, Epoch: 1}
			for i, err := range append(s.Renew(t.Context(), []Held{h, h}, lease), s.Save(t.Context(), h, 1, nil, life)) {
				if !errors.Is(err, ErrUnavailable) || strings.Contains(err.Error(), secret) {
					t.Errorf("%d: %v", i, err)
				}
			}
			if err := s.Drain(t.Context(), h); !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v does not say %q", err, tc.want)
			}
		})
	}
}
