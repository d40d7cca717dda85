package store

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/causeway-dev/causeway/api/bundle"
)

func TestRedis(t *testing.T) {
	s := startServer(t)
	testContract(t, func(t *testing.T) (Backend, func(time.Duration)) {
		r := s.store(t)
		return r, func(d time.Duration) { r.advance(t, d) }
	})
}

// startCluster starts two nodes that share the slots.
func startCluster(t *testing.T) (a, b *server) {
	t.Helper()
	a, b = startNode(t), startNode(t)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(a.client().ClusterAddSlotsRange(ctx, 0, 8191).Err())
	must(b.client().ClusterAddSlotsRange(ctx, 8192, 16383).Err())
	host, port, err := net.SplitHostPort(b.addr)
	must(err)
	must(a.client().ClusterMeet(ctx, host, port).Err())
	for _, s := range []*server{a, b} {
		eventually(t, "the cluster", func() bool {
			info := s.client().ClusterInfo(ctx).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:2")
		})
	}
	return a, b
}

func TestRedisCluster(t *testing.T) {
	a, b := startCluster(t)
	testContract(t, func(t *testing.T) (Backend, func(time.Duration)) {
		r := openRedis(t, RedisOptions{Addresses: []string{a.addr, b.addr}})
		return r, func(d time.Duration) { r.advance(t, d) }
	})
	t.Run("one address is enough", func(t *testing.T) {
		s := openRedis(t, RedisOptions{Addresses: []string{a.addr}})
		var held []Held
		for i := range 50 {
			held = append(held, claimed(t, s, Key(fmt.Sprint("k", i))))
		}
		if !s.client.Load().cluster {
			t.Fatal("still taken for a single server")
		}
		fresh := openRedis(t, RedisOptions{Addresses: []string{a.addr}})
		fresh.prefix = s.prefix
		for i, err := range fresh.Renew(t.Context(), held, lease) { // a pipeline finds out, too
			if err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
	})
	t.Run("many keys in one renewal", func(t *testing.T) {
		s := openRedis(t, RedisOptions{Addresses: []string{b.addr, a.addr}})
		var held []Held
		for i := range 100 {
			held = append(held, claimed(t, s, Key(fmt.Sprint("k", i))))
		}
		if err := s.client.Load().ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		for i, err := range s.Renew(t.Context(), held, lease) {
			if err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
	})
	t.Run("a node that is gone takes only its keys", func(t *testing.T) {
		s := openRedis(t, RedisOptions{Addresses: []string{a.addr, b.addr}})
		for _, n := range []*server{a, b} {
			if err := n.client().ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err(); err != nil {
				t.Fatal(err)
			}
		}
		var held []Held
		for i := range 50 {
			held = append(held, claimed(t, s, Key(fmt.Sprint("k", i))))
		}
		b.kill()
		ok, away := 0, 0
		begun := time.Now()
		for _, err := range s.Renew(t.Context(), held, lease) {
			switch {
			case err == nil:
				ok++
			case errors.Is(err, ErrUnavailable):
				away++
			default:
				t.Fatal(err)
			}
		}
		if ok == 0 || away == 0 || time.Since(begun) > redisTimeout+time.Second {
			t.Fatalf("%d renewed, %d not, in %s", ok, away, time.Since(begun))
		}
	})
}

func TestSeveralAddressesOfNoCluster(t *testing.T) {
	s := startServer(t)
	two := openRedis(t, RedisOptions{Addresses: []string{s.addr, s.addr}})
	if _, err := two.Look(t.Context(), key); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "give one") {
		t.Fatal(err)
	}
}

func TestBridgesShareAServer(t *testing.T) {
	s := startServer(t)
	open := func(namespace, bridge string) Store {
		r, err := NewRedis(RedisOptions{Addresses: []string{s.addr}, Namespace: namespace, Bridge: bridge})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		return r
	}
	stores := []Store{open("a", "b"), open("a", "c"), open("b", "b"), open("ab", "b")}
	for i, r := range stores {
		// Each gets the key, though the others hold theirs.
		c, err := r.Claim(t.Context(), key, Holder{Pod: strconv.Itoa(i), Process: "x"}, 0, lease)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{
			r.Save(t.Context(), c.Held, 1, fmt.Append(nil, i), life), r.PutAlias(t.Context(), "n", fmt.Append(nil, i), life),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, r := range stores {
		e, _ := r.Look(t.Context(), key)
		alias, err := r.Alias(t.Context(), "n")
		if err != nil || string(e.Value) != strconv.Itoa(i) || string(alias) != strconv.Itoa(i) {
			t.Errorf("store %d: %q, %q, %v", i, e.Value, alias, err)
		}
	}
}

func TestScenario102_TimesAreTheServersOwnMilliseconds(t *testing.T) {
	srv := startServer(t)
	s, c := srv.store(t), srv.client()
	ctx := t.Context()
	before := c.Time(ctx).Val().UnixMilli()
	h := claimed(t, s, key)
	for _, err := range []error{
		s.Save(ctx, h, 1, nil, time.Hour), s.PutTurn(ctx, h, Turn{Fingerprint: "f", Attempt: 1, State: TurnUnknown}, time.Hour),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	after := c.Time(ctx).Val().UnixMilli()
	within := func(what, digits string, offset time.Duration) {
		t.Helper()
		n, err := strconv.ParseInt(digits, 10, 64) // digits only: no exponent, no fraction
		if err != nil || n < before+offset.Milliseconds() || n > after+offset.Milliseconds() {
			t.Errorf("%s is %q, want %d to %d plus %s", what, digits, before, after, offset)
		}
	}
	within("lease", c.HGet(ctx, s.entry(key), "lease").Val(), lease)
	within("keep", c.HGet(ctx, s.entry(key), "keep").Val(), time.Hour)
	turn := strings.Fields(c.HGet(ctx, s.turns(key), "f").Val())
	within("end of the turn", turn[0], time.Hour)
	within("begin of the turn", turn[1], 0)
	// A lease that is over by that clock is over, without anybody's help.
	short, err := s.Claim(ctx, "short", podA, 0, 30*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of a lease", func() bool {
		_, err := s.Claim(ctx, "short", podB, 0, lease)
		return err == nil
	})
	if took := time.Duration(c.Time(ctx).Val().UnixMilli()-before) * time.Millisecond; took < 30*time.Millisecond {
		t.Fatalf("lease of epoch %d was over after %s", short.Epoch, took)
	}
}

func TestEverythingInRedisExpires(t *testing.T) {
	srv := startServer(t)
	s, c := srv.store(t), srv.client()
	ctx := t.Context()
	h := claimed(t, s, key)
	for _, err := range []error{
		s.Save(ctx, h, 1, nil, time.Minute), s.PutAlias(ctx, "n", nil, time.Minute), s.Drain(ctx, h),
		s.PutTurn(ctx, h, Turn{Fingerprint: "f", Attempt: 1, State: TurnUnknown}, time.Minute),
		s.PutTurn(ctx, h, Turn{Fingerprint: "g", Attempt: 1, State: TurnUnknown}, time.Second),
		s.PutNote(ctx, "b", "n", nil, time.Minute), s.PutNote(ctx, "b", "m", nil, time.Second),
		s.AppendEvents(ctx, h, "f", 1, 0, raw("e"), time.Minute), s.Renew(ctx, []Held{h}, lease)[0], s.Release(ctx, h),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	keys := c.Keys(ctx, "*").Val()
	if len(keys) != 5 {
		t.Fatalf("keys %v", keys)
	}
	for _, k := range keys {
		want := time.Minute
		if strings.HasSuffix(k, ":entry") {
			want = fenceMemory
		}
		if left := c.PTTL(ctx, k).Val(); left <= want-10*time.Second || left > want {
			t.Errorf("%s lives %s, want %s", k, left, want)
		}
	}
}

func TestACorruptValueIsAnErrorThatNamesItsKey(t *testing.T) {
	srv := startServer(t)
	c := srv.client()
	entry := map[string]any{"pod": "a", "process": "a1", "address": "", "epoch": "1", "fence": "0", "lease": "9000000000000", "draining": "0"}
	good := map[string]any{"f": `9000000000000 1 1 0 0 {"fp":"f","id":"r","state":"submitted","attempt":1}`}
	claim := func(s *redisStore) error { _, err := s.Claim(t.Context(), key, podA, 0, lease); return err }
	look := func(s *redisStore) error { _, err := s.Look(t.Context(), key); return err }
	held := Held{Key: key, Holder: podA, Epoch: 1}
	save := func(s *redisStore) error { return s.Save(t.Context(), held, 1, nil, life) }
	put := func(s *redisStore) error {
		return s.PutTurn(t.Context(), held, Turn{Fingerprint: "f", Attempt: 2, State: TurnUnknown}, life)
	}
	drop := func(s *redisStore) error { return s.DropTurn(t.Context(), held, "f", 1) }
	add := func(s *redisStore) error { return s.AppendEvents(t.Context(), held, "f", 1, 0, raw("e"), life) }
	read := func(s *redisStore) error { _, err := s.Transcript(t.Context(), key, "f"); return err }
	renew := func(s *redisStore) error { return s.Renew(t.Context(), []Held{held}, lease)[0] }
	release := func(s *redisStore) error { return s.Release(t.Context(), held) }
	ofEntry := []func(*redisStore) error{claim, look, save, renew, release, put, drop, add}
	ofTurn, ofTranscript := []func(*redisStore) error{claim, put, drop, add}, []func(*redisStore) error{put, drop, add, read}
	set := func(field string, value any) func(context.Context, *redisStore) {
		return func(ctx context.Context, s *redisStore) { c.HSet(ctx, s.entry(key), field, value) }
	}
	turn := func(value string) func(context.Context, *redisStore) {
		return func(ctx context.Context, s *redisStore) { c.HSet(ctx, s.turns(key), "f", value) }
	}
	transcript := func(values ...any) func(context.Context, *redisStore) {
		return func(ctx context.Context, s *redisStore) { c.RPush(ctx, s.transcript(key, "f"), values...) }
	}
	for name, tc := range map[string]struct {
		spoil func(context.Context, *redisStore)
		calls []func(*redisStore) error
	}{
		"entry of another type":      {func(ctx context.Context, s *redisStore) { c.Del(ctx, s.entry(key)); c.Set(ctx, s.entry(key), "x", 0) }, ofEntry},
		"epoch":                      {set("epoch", "many"), ofEntry},
		"fence":                      {set("fence", ""), ofEntry},
		"lease":                      {set("lease", "soon"), ofEntry},
		"version":                    {set("version", "\x00"), ofEntry},
		"keep":                       {set("keep", "long"), ofEntry},
		"draining":                   {set("draining", "perhaps"), []func(*redisStore) error{claim, look}},
		"a negative epoch":           {set("epoch", "-5"), []func(*redisStore) error{claim, look}},
		"a lease without end":        {set("lease", "1e300"), []func(*redisStore) error{claim, look}},
		"turns of another type":      {func(ctx context.Context, s *redisStore) { c.Del(ctx, s.turns(key)); c.Set(ctx, s.turns(key), "x", 0) }, ofTurn},
		"turn":                       {turn("x"), ofTurn},
		"turn without a body":        {turn("9000000000000 1 1 0 0 "), ofTurn[:1]},
		"turn with another body":     {turn("9000000000000 1 1 0 0 [1]"), ofTurn[:1]},
		"turn of another print":      {turn(`9000000000000 1 1 0 0 {"fp":"g","state":"unknown","attempt":1}`), ofTurn[:1]},
		"turn of no state":           {turn(`9000000000000 1 1 0 0 {"fp":"f","state":"fine","attempt":1}`), ofTurn[:1]},
		"turn of no attempt":         {turn(`9000000000000 1 1 0 0 {"fp":"f","state":"unknown"}`), ofTurn[:1]},
		"turn of an age":             {turn(`9000000000000 99999999999999 1 0 0 {"fp":"f","state":"unknown","attempt":1}`), ofTurn[:1]},
		"transcript of another type": {func(ctx context.Context, s *redisStore) { c.Set(ctx, s.transcript(key, "f"), "x", 0) }, ofTranscript},
		"transcript":                 {transcript("x"), ofTranscript},
		"transcript of another size": {transcript("1 5", "four"), ofTranscript[3:]},
		"transcript of a huge head":  {transcript("99999999999999999999 1", "x"), ofTranscript[3:]},
	} {
		t.Run(name, func(t *testing.T) {
			for i, call := range tc.calls {
				s := srv.store(t)
				c.HSet(t.Context(), s.entry(key), entry)
				c.HSet(t.Context(), s.turns(key), good)
				tc.spoil(t.Context(), s)
				err := call(s)
				if !errors.Is(err, ErrCorrupt) || !errors.Is(err, ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "turn_state:0123456789ab") {
					t.Errorf("call %d: %v", i, err)
				}
			}
		})
	}
}

func TestPasswordOfRedis(t *testing.T) {
	const secret = "CANARY pass word"
	srv := startServer(t, "--requirepass", secret)
	for name, tc := range map[string]struct{ password, says string }{
		"right": {secret, ""}, "none": {"", "set spec.store.redis.authSecretRef"}, "wrong": {"CANARY other", "correct the Secret"},
	} {
		t.Run(name, func(t *testing.T) {
			s := openRedis(t, RedisOptions{Addresses: []string{srv.addr}, Password: tc.password})
			_, err := s.Claim(t.Context(), key, podA, 0, lease)
			if tc.says == "" && err == nil {
				return
			}
			if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "CANARY") {
				t.Fatal(err)
			}
		})
	}
}

func TestAnotherPasswordNeedsNoRestart(t *testing.T) {
	const first, second = "CANARY first", "CANARY second"
	for name, serverFirst := range map[string]bool{"the server changes first": true, "the proxy changes first": false} {
		t.Run(name, func(t *testing.T) {
			srv := startServer(t, "--requirepass", first)
			admin := redis.NewClient(&redis.Options{Addr: srv.addr, Password: first})
			defer admin.Close()
			s := openRedis(t, RedisOptions{Addresses: []string{srv.addr}, Password: first})
			h := claimed(t, s, key)
			server := func() { must(t, admin.ConfigSet(t.Context(), "requirepass", second).Err()) }
			proxy := func() { s.SetPassword(second) }
			steps := []func(){server, proxy}
			if !serverFirst {
				steps = []func(){proxy, server}
			}
			steps[0]()
			must(t, s.Renew(t.Context(), []Held{h}, lease)[0]) // on the connection that it has
			// What was open is cut, as by a server that starts anew.
			must(t, admin.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
			refused := func() error {
				err := s.Renew(t.Context(), []Held{h}, lease)[0]
				if err != nil && !strings.Contains(err.Error(), "refuses the password") {
					err = s.Renew(t.Context(), []Held{h}, lease)[0] // the first found out that its connection was cut
				}
				return err
			}
			if err := refused(); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "correct the Secret") || strings.Contains(err.Error(), "CANARY") {
				t.Fatal(err)
			}
			steps[1]()
			must(t, s.Renew(t.Context(), []Held{h}, lease)[0])
			if printed := fmt.Sprintf("%+v", s.opts); strings.Contains(printed, "CANARY") {
				t.Fatal(printed)
			}
		})
	}
}

func TestRealRefusals(t *testing.T) {
	srv := startServer(t)
	s, c := srv.store(t), srv.client()
	h := claimed(t, s, key)
	expect := func(what string) {
		t.Helper()
		_, claim := s.Claim(t.Context(), "k", podB, 0, lease)
		for i, err := range []error{claim, s.Save(t.Context(), h, 1, nil, life), s.Renew(t.Context(), []Held{h}, lease)[0]} {
			if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), what) {
				t.Errorf("%d: %v", i, err)
			}
		}
	}
	c.ConfigSet(t.Context(), "maxmemory", "1")
	expect("maxmemory")
	c.ConfigSet(t.Context(), "maxmemory", "0")
	c.SlaveOf(t.Context(), "127.0.0.1", "1")
	expect("primary")
	c.SlaveOf(t.Context(), "no", "one")
	if err := s.Save(t.Context(), h, 1, nil, life); err != nil {
		t.Fatal(err)
	}
}

// authority makes a certificate that signs itself, for localhost, and writes it.
func authority(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redis"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, content := range map[string][]byte{
		"cert.pem": certificate, "key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	return roots
}

func TestRedisOverTLS(t *testing.T) {
	dir := t.TempDir()
	roots := authority(t, dir)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	encrypted := l.Addr().String()
	_, port, _ := net.SplitHostPort(encrypted)
	l.Close()
	startServer(t, "--tls-port", port, "--tls-cert-file", filepath.Join(dir, "cert.pem"), "--tls-key-file", filepath.Join(dir, "key.pem"),
		"--tls-auth-clients", "no")
	for name, tc := range map[string]struct {
		o    RedisOptions
		says string
	}{
		"trusted":            {RedisOptions{Addresses: []string{encrypted}, TLS: true, RootCAs: roots}, ""},
		"not trusted":        {RedisOptions{Addresses: []string{encrypted}, TLS: true}, "not trusted"},
		"of another host":    {RedisOptions{Addresses: []string{"localhost:" + port}, TLS: true, RootCAs: roots}, "host of the address"},
		"server without TLS": {RedisOptions{Addresses: []string{stub(t, "-ERR Protocol error")}, TLS: true, RootCAs: roots}, "does not speak TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := openRedis(t, tc.o).Look(t.Context(), key)
			if tc.says == "" && errors.Is(err, ErrNotFound) {
				return
			}
			if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), tc.says) {
				t.Fatal(err)
			}
		})
	}
}

func TestOpen(t *testing.T) {
	srv := startServer(t, "--requirepass", "secret")
	b := bundle.Bundle{Namespace: "prod", Name: "chat", Store: bundle.Store{Type: bundle.StoreRedis, Addresses: []string{srv.addr}, TLS: "Disabled"}}
	s, err := Open(b, bundle.Credentials{StorePassword: "secret"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	claimed(t, s, key)
	c := redis.NewClient(&redis.Options{Addr: srv.addr, Password: "secret"})
	defer c.Close()
	if keys := c.Keys(t.Context(), "*").Val(); len(keys) != 1 || keys[0] != "causeway:1:prod/chat:{"+string(key)+"}:entry" {
		t.Errorf("keys %v", keys)
	}
	if m, err := Open(bundle.Bundle{Store: bundle.Store{Type: bundle.StoreMemory}}, bundle.Credentials{}, nil); err != nil {
		t.Error(err)
	} else if _, ok := m.(*memory); !ok {
		t.Errorf("%T", m)
	}
	for _, bad := range []bundle.Bundle{{}, {Store: bundle.Store{Type: "Etcd"}}, {Namespace: "a", Name: "b", Store: bundle.Store{Type: bundle.StoreRedis}}} {
		if _, err := Open(bad, bundle.Credentials{StorePassword: "CANARY"}, nil); err == nil || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%+v: %v", bad.Store, err)
		}
	}
}
