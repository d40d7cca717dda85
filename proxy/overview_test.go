package proxy

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/proxy/internal/report"
	"github.com/causeway-dev/causeway/proxy/internal/session"
	"github.com/causeway-dev/causeway/test/upstream"
)

// edit changes the configuration that is served, and returns when it is.
func (p *proxied) edit(t *testing.T, change func(*bundle.Bundle)) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(p.dir, bundle.FileName))
	if err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	change(&b)
	reloads := p.metric(t, "causeway_proxy_config_reloads_total")
	if raw, err = b.Seal().Encode(); err != nil {
		t.Fatal(err)
	}
	p.put(t, bundle.FileName, raw)
	p.until(t, "a reload", func() bool { return p.metric(t, "causeway_proxy_config_reloads_total") != reloads })
}

// until asks again and again, as a person would, for as long as one has patience.
func (p *proxied) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatal("it never came: ", what)
		}
	}
}

// text returns what a GET of the ops port answers.
func (p *proxied) text(t *testing.T, path string) (int, string) {
	t.Helper()
	res, err := p.open(t, http.MethodGet, p.ops+path, "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(raw)
}

// metric returns the first line that begins so, without the name.
func (p *proxied) metric(t *testing.T, name string) string {
	t.Helper()
	_, text := p.text(t, "/metrics")
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `(.*)$`).FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	return strings.TrimSpace(found[1])
}

// turn sends one turn of a Codex session and returns the status and the answer.
func (p *proxied) turn(t *testing.T, sessionID, body string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.data+"/backend-api/codex/responses", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+firstKey)
	req.Header.Set("Session-Id", sessionID)
	req.Header.Set("X-Codex-Turn-Metadata", `{"note":"CANARY"}`)
	res, err := p.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(raw)
}

func (p *proxied) sessions(t *testing.T, query string) (total int, items []session.View) {
	t.Helper()
	status, raw := p.text(t, "/admin/v1/sessions"+query)
	var list struct {
		Total int
		Items []session.View
	}
	if err := json.Unmarshal([]byte(raw), &list); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s: %v", status, raw, err)
	}
	if strings.Contains(raw, "CANARY") {
		t.Error("the list shows what a client sent:", raw)
	}
	return list.Total, list.Items
}

func TestOpsPortShowsSessionsAfterTurns(t *testing.T) {
	up := upstream.Start(t, upstream.Options{Accounts: map[string]string{secretKey: "first"}})
	p := launch(t, http.NotFoundHandler(), bundle.Drain{PodGraceSeconds: 60}, nil)
	p.configure(t, up.URL+"/v1", bundle.Drain{PodGraceSeconds: 60}, firstKey)
	p.awaitConfiguration(t)
	if total, items := p.sessions(t, ""); total != 0 || len(items) != 0 {
		t.Errorf("sessions before the first turn: %d %+v", total, items)
	}
	for _, id := range []string{"CANARY-one", "CANARY-two", "CANARY-three", "CANARY-one"} {
		if status, _, raw := p.turn(t, id, `{"model":"gpt-5.5","input":"CANARY prompt"}`); status != http.StatusOK {
			t.Fatalf("%d %s", status, raw)
		}
	}
	total, items := p.sessions(t, "?limit=2")
	if total != 3 || len(items) != 2 {
		t.Fatalf("%d sessions, %d shown, want 3 and 2", total, len(items))
	}
	newest := items[0]
	if newest.Account != "first" || newest.Circuit != "closed" || newest.Anchor != "good" || newest.State != "idle" {
		t.Errorf("the newest is %+v, want an idle one on account first with a good anchor", newest)
	}
	status, raw := p.text(t, "/admin/v1/sessions/"+newest.Key)
	var detail session.Detail
	if err := json.Unmarshal([]byte(raw), &detail); err != nil || status != http.StatusOK || strings.Contains(raw, "CANARY") {
		t.Fatalf("%d %s: %v", status, raw, err)
	}
	if len(detail.Attempts) != 2 || len(detail.Attempts[1].Facts) == 0 || detail.Attempts[1].Verdict != "completed" || detail.Key != newest.Key {
		t.Errorf("want the facts and verdicts of two attempts: %s", raw)
	}
	if status, raw = p.text(t, "/admin/v1/sessions/ffffffffffff"); status != http.StatusNotFound || !strings.Contains(raw, "/admin/v1/sessions") {
		t.Errorf("%d %s", status, raw)
	}
	for _, path := range []string{"/admin/v1/sessions", "/admin/v1/sessions/" + newest.Key} {
		if got := p.status(t, p.data+path, firstKey); got != http.StatusNotFound {
			t.Errorf("the data port answers %s with %d", path, got)
		}
	}
}

// bridged is a proxy before a scripted upstream.
func bridged(t *testing.T, script upstream.Script) (*upstream.Server, *proxied) {
	t.Helper()
	up := upstream.Start(t, upstream.Options{Accounts: map[string]string{secretKey: "first"}, Script: script})
	p := launch(t, http.NotFoundHandler(), bundle.Drain{PodGraceSeconds: 60}, nil)
	p.configure(t, up.URL+"/v1", bundle.Drain{PodGraceSeconds: 60}, firstKey)
	p.awaitConfiguration(t)
	return up, p
}

// builtIn is the circuit policy of who names none.
func builtIn(t *testing.T) bundle.Circuit {
	t.Helper()
	circuit, errs := effective.Circuit(nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return circuit
}

// A session that is stuck is seen on the ops port and in metrics, and a new
// value of the annotation lets its next turn through; an old one does not.
func TestAResetLetsTheNextTurnThrough(t *testing.T) {
	up, p := bridged(t, upstream.Script{})
	circuit := builtIn(t)
	p.edit(t, func(b *bundle.Bundle) {
		b.Circuit.RetryCircuit, b.Circuit.Quarantine = circuit.RetryCircuit, circuit.Quarantine
		b.ResetCircuits = "before"
	})
	const body = `{"model":"gpt-5.5","input":"CANARY prompt"}`
	cut := upstream.Script{Rules: []upstream.Rule{{Fault: &upstream.Fault{At: upstream.AtBeforeHeaders, Action: upstream.ActReset}}}}
	stick := func() {
		t.Helper()
		if err := up.Script(cut); err != nil {
			t.Fatal(err)
		}
		for range circuit.RetryCircuit.FailureThreshold {
			p.turn(t, "CANARY", body)
		}
		if err := up.Script(upstream.Script{}); err != nil {
			t.Fatal(err)
		}
		if status, header, raw := p.turn(t, "CANARY", body); status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
			t.Fatalf("%d %s, want the circuit to refuse", status, raw)
		}
	}
	stick()
	if _, items := p.sessions(t, ""); len(items) != 1 || items[0].Circuit != "open" || items[0].CircuitUntil == nil || items[0].Strikes == 0 {
		t.Errorf("sessions %+v, want one with an open circuit and its end", items)
	}
	if got := p.metric(t, `causeway_proxy_circuits{state="open"}`); got != "1" {
		t.Errorf("%s open circuits in the metrics", got)
	}
	served := func() bool {
		status, _, _ := p.turn(t, "CANARY", body)
		return status == http.StatusOK
	}
	p.edit(t, func(b *bundle.Bundle) { b.ResetCircuits = "" })
	p.edit(t, func(b *bundle.Bundle) { b.ResetCircuits = "before" }) // no new wish
	if served() {
		t.Fatal("an old value closed a circuit")
	}
	p.edit(t, func(b *bundle.Bundle) { b.ResetCircuits = "after" })
	p.until(t, "a turn that is let through", served)
	if got := p.metric(t, `causeway_proxy_circuits{state="open"}`); got != "0" {
		t.Errorf("%s open circuits in the metrics after the reset", got)
	}
	// Under a value that is there already, circuits open as ever, whatever else
	// of the configuration changes.
	stick()
	p.edit(t, func(b *bundle.Bundle) { b.Circuit.Deadlines.IdleSeconds++ })
	if served() {
		t.Error("an old value closed a circuit with another change")
	}
}

func TestWhatIsReportedOfSessions(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	got := reported(session.Overview{
		Active: 4, Idle: 50, Draining: 1, Quarantined: 3, OldestTurn: time.Minute, Open: 2, HalfOpen: 5,
		Circuits:    []session.CircuitView{{Key: "aaaaaaaaaaaa", HalfOpen: true, Reason: "CleanClose", Until: at}},
		Quarantines: []session.QuarantineView{{Key: "bbbbbbbbbbbb", Reason: "Wedged", Since: at.Add(-time.Hour), Until: at}},
	}, 0)
	want := report.Sessions{
		Active: 4, Draining: 1, Quarantined: 3, OldestTurn: time.Minute, NotClosed: 7,
		Circuits:    []report.Circuit{{Key: "aaaaaaaaaaaa", HalfOpen: true, Reason: "CleanClose", Until: at}},
		Quarantines: []report.Quarantine{{Key: "bbbbbbbbbbbb", Reason: "Wedged", Until: at}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What a person forces holds in a real proxy until its end, is seen in metrics,
// and ends at once when the wish is taken back.
func TestT16_AForcedRouteRefusesAndReturns(t *testing.T) {
	up, p := bridged(t, upstream.Script{})
	circuit := builtIn(t)
	p.edit(t, func(b *bundle.Bundle) { b.Circuit.Breaker = circuit.Breaker })
	turn := func() int {
		status, _, _ := p.turn(t, "CANARY", `{"model":"gpt-5.5","input":"hello"}`)
		return status
	}
	p.until(t, "a turn that is let through", func() bool { return turn() == http.StatusOK })
	host := strings.TrimPrefix(up.URL, "http://")
	force := func(until time.Time) {
		p.edit(t, func(b *bundle.Bundle) {
			b.ForceCircuits = []bundle.ForcedCircuit{{Route: host, State: bundle.CircuitOpen, Until: until}}
		})
	}
	force(time.Now().Add(time.Hour))
	p.until(t, "a refusal", func() bool { return turn() == http.StatusServiceUnavailable })
	sent := len(up.Ledger().Dispatches())
	if status, header, raw := p.turn(t, "CANARY", `{"model":"gpt-5.5","input":"hello"}`); status != http.StatusServiceUnavailable ||
		header.Get("Retry-After") == "" || !strings.Contains(raw, "route_open") {
		t.Errorf("%d %s, want a refusal that names the route's circuit and a time", status, raw)
	}
	if now := len(up.Ledger().Dispatches()); now != sent {
		t.Errorf("%d turns were sent on a route that is forced open", now-sent)
	}
	if !strings.Contains(p.log.String(), `"audit":true`) {
		t.Error("no audit record")
	}
	force(time.Now().Add(-time.Second))
	p.until(t, "a turn after its end", func() bool { return turn() == http.StatusOK })
	force(time.Now().Add(time.Hour))
	p.until(t, "a refusal again", func() bool { return turn() == http.StatusServiceUnavailable })
	p.edit(t, func(b *bundle.Bundle) { b.ForceCircuits = nil })
	p.until(t, "a turn after the wish is gone", func() bool { return turn() == http.StatusOK })
}
