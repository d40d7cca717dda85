package peer

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/bridge"
	"github.com/causeway-dev/causeway/proxy/internal/intake"
	"github.com/causeway-dev/causeway/proxy/internal/route"
)

// forged is a request to a peer port that a test may spoil.
type forged struct {
	envelope Envelope
	key      string
	header   http.Header
	body     string
	// after changes the signed request.
	after func(*http.Request)
}

func honest(o *owner) forged {
	return forged{
		key: currentKey, body: `{"model":"m"}`, header: http.Header{"Thread-Id": {"t1"}, "User-Agent": {"x"}},
		envelope: Envelope{Request: "req-1", Client: "alice", Route: "codex", Key: conversation.Name(), Origin: "origin",
			Target: o.pod, Address: o.address, Hops: 1},
	}
}

func (f forged) send(t *testing.T, o *owner) (status int, outcome, reason string) {
	t.Helper()
	if f.envelope.HeaderDigest == "" {
		f.envelope.HeaderDigest = headerDigest(f.header)
	}
	if f.envelope.BodyDigest == "" {
		f.envelope.BodyDigest, f.envelope.BodyBytes = digestOf([]byte(f.body)), int64(len(f.body))
	}
	envelope, signature, err := f.envelope.sign([]byte(f.key))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+o.address+turnPath, strings.NewReader(f.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = f.header.Clone()
	req.Header.Set(envelopeHeader, envelope)
	req.Header.Set(signatureHeader, signature)
	if f.after != nil {
		f.after(req)
	}
	transport := &http.Transport{DisableCompression: true, ExpectContinueTimeout: never}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode, res.Header.Get(outcomeHeader), res.Header.Get(reasonHeader)
}

func TestScenario107_OnlyWhatAPeerSignedIsServed(t *testing.T) {
	o := newOwner(t, answer)
	// swap changes the envelope and keeps its signature.
	swap := func(change func(*Envelope)) func(*http.Request) {
		return func(r *http.Request) {
			raw, _ := base64.RawURLEncoding.DecodeString(r.Header.Get(envelopeHeader))
			var e Envelope
			if err := json.Unmarshal(raw, &e); err != nil {
				t.Fatal(err)
			}
			change(&e)
			raw, _ = json.Marshal(e)
			r.Header.Set(envelopeHeader, base64.RawURLEncoding.EncodeToString(raw))
		}
	}
	for name, tt := range map[string]struct {
		change func(*forged)
		status int
		reason string
	}{
		"honest":       {func(*forged) {}, 200, ""},
		"previous key": {func(f *forged) { f.key = previousKey }, 200, ""},
		"by address":   {func(f *forged) { f.envelope.Target = "" }, 200, ""},
		"other order of headers": {func(f *forged) {
			f.header = http.Header{"A": {"1"}, "B": {"2", "3"}}
			f.after = func(r *http.Request) {
				r.Header = http.Header{"B": r.Header["B"], "A": r.Header["A"], envelopeHeader: r.Header[envelopeHeader], signatureHeader: r.Header[signatureHeader], "User-Agent": {""}}
			}
		}, 200, ""},
		"Authorization is nobody's": {func(f *forged) { f.after = func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") } }, 200, ""},

		"unknown key": {func(f *forged) { f.key = strings.Repeat("x", 32) }, 401, reasonSignature},
		"unknown key under the id of a known one": {func(f *forged) {
			f.key = strings.Repeat("x", 32)
			f.after = func(r *http.Request) {
				_, mac, _ := strings.Cut(r.Header.Get(signatureHeader), ".")
				r.Header.Set(signatureHeader, keyID([]byte(currentKey))+"."+mac)
			}
		}, 401, reasonSignature},
		"no signature": {func(f *forged) { f.after = func(r *http.Request) { r.Header.Del(signatureHeader) } }, 401, reasonSignature},
		"no envelope":  {func(f *forged) { f.after = func(r *http.Request) { r.Header.Del(envelopeHeader) } }, 401, reasonSignature},
		"no base64":    {func(f *forged) { f.after = func(r *http.Request) { r.Header.Set(envelopeHeader, "{}") } }, 401, reasonSignature},
		"signature of no base64": {func(f *forged) {
			f.after = func(r *http.Request) { r.Header.Set(signatureHeader, keyID([]byte(currentKey))+".!") }
		}, 401, reasonSignature},
		"tampered client": {func(f *forged) { f.after = swap(func(e *Envelope) { e.Client = "bob" }) }, 401, reasonSignature},
		"tampered target": {func(f *forged) {
			f.envelope.Target = "another"
			f.after = swap(func(e *Envelope) { e.Target = "owner" })
		}, 401, reasonSignature},
		"tampered hops": {func(f *forged) {
			f.envelope.Hops = 2
			f.after = swap(func(e *Envelope) { e.Hops = 1 })
		}, 401, reasonSignature},
		"tampered body": {func(f *forged) {
			f.after = func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(`{"model":"n"}`)) }
		}, 401, reasonSignature},
		"tampered header":     {func(f *forged) { f.after = func(r *http.Request) { r.Header.Set("Thread-Id", "t2") } }, 401, reasonSignature},
		"header added":        {func(f *forged) { f.after = func(r *http.Request) { r.Header.Set("X-Codex-Turn-State", "t") } }, 401, reasonSignature},
		"header taken":        {func(f *forged) { f.after = func(r *http.Request) { r.Header.Del("Thread-Id") } }, 401, reasonSignature},
		"other target":        {func(f *forged) { f.envelope.Target = "another" }, 421, reasonTarget},
		"other address":       {func(f *forged) { f.envelope.Target, f.envelope.Address = "", "127.0.0.1:1" }, 421, reasonTarget},
		"name before address": {func(f *forged) { f.envelope.Target = "another"; f.envelope.Address = o.address }, 421, reasonTarget},
		"unknown route":       {func(f *forged) { f.envelope.Route = "v9" }, 400, reasonForm},
		"unknown kind":        {func(f *forged) { f.envelope.Key = "ff" + f.envelope.Key[2:] }, 400, reasonForm},
		"no key":              {func(f *forged) { f.envelope.Key = "" }, 400, reasonForm},
		"other length":        {func(f *forged) { f.envelope.BodyDigest, f.envelope.BodyBytes = digestOf([]byte(f.body)), 4 }, 400, reasonBody},
		"an envelope that is none": {func(f *forged) {
			f.after = func(r *http.Request) {
				raw := []byte("[]")
				r.Header.Set(envelopeHeader, base64.RawURLEncoding.EncodeToString(raw))
				r.Header.Set(signatureHeader, keyID([]byte(currentKey))+"."+base64.RawURLEncoding.EncodeToString(authenticate([]byte(currentKey), raw)))
			}
		}, 401, reasonSignature},
		"compressed": {func(f *forged) {
			f.after = func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") } // not signed, and not heeded
		}, 200, ""},
	} {
		t.Run("Scenario 107: "+name, func(t *testing.T) {
			f, before := honest(o), o.count.Load()
			tt.change(&f)
			status, outcome, reason := f.send(t, o)
			want, served := rejected, int64(0)
			if tt.reason == "" {
				want, served = acknowledged, 1
			}
			if status != tt.status || outcome != want || reason != tt.reason || o.count.Load()-before != served {
				t.Errorf("%d %s %s, served %d; want %d %s %s, served %d", status, outcome, reason, o.count.Load()-before, tt.status, want, tt.reason, served)
			}
		})
	}
}

// Slots of two versions relay to each other: an envelope of a version that knew less
// is understood, and what a newer one adds does no harm.
func TestT56_EnvelopesOfAnotherVersion(t *testing.T) {
	o := newOwner(t, answer)
	f := honest(o)
	raw, err := json.Marshal(f.envelope)
	if err != nil || strings.Contains(string(raw), "tail") {
		t.Fatalf("an envelope without what is new has it all the same: %s %v", raw, err)
	}
	digests := fmt.Sprintf(`"header":%q,"body":%q,"bytes":%d`, headerDigest(f.header), digestOf([]byte(f.body)), len(f.body))
	for name, envelope := range map[string]string{
		"older": fmt.Sprintf(`{"request":"r","client":"alice","route":"codex","stream":false,"key":%q,"origin":"origin","target":"owner","address":%q,"hops":1,%s}`,
			conversation.Name(), o.address, digests),
		"newer": fmt.Sprintf(`{"request":"r","client":"alice","route":"codex","stream":false,"key":%q,"origin":"origin","target":"owner","address":%q,"hops":1,%s,"tail":"resp_1","epoch":7,"more":{"of":"it"}}`,
			conversation.Name(), o.address, digests),
	} {
		f.after = func(req *http.Request) {
			req.Header.Set(envelopeHeader, base64.RawURLEncoding.EncodeToString([]byte(envelope)))
			req.Header.Set(signatureHeader, keyID([]byte(currentKey))+"."+
				base64.RawURLEncoding.EncodeToString(authenticate([]byte(currentKey), []byte(envelope))))
		}
		if status, outcome, reason := f.send(t, o); outcome != acknowledged {
			t.Errorf("%s: %d %s %s", name, status, outcome, reason)
		}
	}
}

func TestScenario106_ATurnThatHasHoppedIsRefused(t *testing.T) {
	o := newOwner(t, answer)
	f := honest(o)
	f.envelope.Hops = 2
	if status, outcome, reason := f.send(t, o); status != http.StatusLoopDetected || outcome != rejected || reason != reasonHop || o.count.Load() != 0 {
		t.Errorf("%d %s %s, served %d", status, outcome, reason, o.count.Load())
	}
}

func TestAReplicaWithoutKeysTakesNothing(t *testing.T) {
	o := newOwner(t, answer)
	o.runtime.Store(runtimeWith(t))
	if status, _, reason := honest(o).send(t, o); status != 401 || reason != reasonSignature || o.count.Load() != 0 {
		t.Errorf("%d %s", status, reason)
	}
}

// A body is as large as on the data port, and nobody has to read one of a
// stranger to know that it is one.
func TestBodiesOfPeersAreBounded(t *testing.T) {
	o := newOwner(t, answer)
	f := honest(o)
	f.envelope.BodyDigest, f.envelope.BodyBytes = "x", intake.MaxBody+1
	f.after = func(r *http.Request) {
		r.ContentLength = intake.MaxBody + 1
		r.Body = io.NopCloser(io.LimitReader(zeros{}, intake.MaxBody+1))
		r.Header.Set("Expect", "100-continue")
	}
	if status, _, reason := f.send(t, o); status != 400 || reason != reasonBody {
		t.Errorf("%d %s", status, reason)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte{'0'}, len(p))), nil }

func TestOtherPathsAreNotServed(t *testing.T) {
	o := newOwner(t, answer)
	for _, path := range []string{"/", "/v1/responses", "/peer/v2/turn"} {
		f := honest(o)
		f.after = func(r *http.Request) { r.URL.Path = path }
		if status, outcome, _ := f.send(t, o); status != http.StatusNotFound || outcome != "" || o.count.Load() != 0 {
			t.Errorf("%s: %d %s", path, status, outcome)
		}
	}
}

// A panic breaks the turn and not the replica, and says nothing of what it held.
func TestAPanicBreaksItsTurnOnly(t *testing.T) {
	first := true
	o := newOwner(t, func(w http.ResponseWriter, r *http.Request, req *bridge.Request) {
		if first {
			first = false
			panic("canary")
		}
		answer(w, r, req)
	})
	in := newOrigin(t, o.address)
	if got := in.post(t, "{}"); got.status != http.StatusBadGateway || strings.Contains(got.body, "canary") {
		t.Errorf("%+v", got)
	}
	if got := in.post(t, "{}"); got.body != created+delta+completed {
		t.Errorf("%+v", got)
	}
	if o.live.Load() != 0 {
		t.Errorf("%d turns live on", o.live.Load())
	}
}

// A replica that should hold a key and sends a turn of it gets the key back; one
// that sends it for want of the owner does not.
func TestScenario108_AKeyGoesBackToTheReplicaThatShouldHoldIt(t *testing.T) {
	var seen bridge.Request
	o := newOwner(t, func(_ http.ResponseWriter, _ *http.Request, req *bridge.Request) { seen = *req })
	table := route.New(o.pod, []route.Member{{Pod: o.pod, Address: o.address}, {Pod: "origin"}, {Pod: "third"}})
	for _, known := range []bool{true, false} {
		o.table.Store(nil)
		if known {
			o.table.Store(table)
		}
		for i := range 20 {
			key := affinity.TurnStateKey("alice", strconv.Itoa(i))
			f := honest(o)
			f.envelope.Key = key.Name()
			if status, outcome, reason := f.send(t, o); status != http.StatusOK || outcome != acknowledged {
				t.Fatal(status, outcome, reason)
			}
			member, _ := table.Owner(key.Digest, nil)
			if want := known && member.Pod == "origin"; seen.Return != want {
				t.Errorf("key %d of %s, table known %t: %t", i, member.Pod, known, seen.Return)
			}
		}
	}
}
