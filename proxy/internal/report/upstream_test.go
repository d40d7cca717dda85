package report

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/causeway-dev/causeway/api/v1alpha1"
)

func after(d time.Duration) *metav1.Time {
	t := metav1.NewTime(start.Add(d))
	return &t
}

func TestB46_UsageThatIsNotKnownIsNotZero(t *testing.T) {
	got := statusOf(snapshot(func(s *Snapshot) {
		s.Accounts = []Account{
			{Name: "silent", State: "Usable"},
			{Name: "told", State: "QuotaExhausted", Reason: "QuotaExhausted", Since: start, Until: start.Add(time.Hour), NextProbe: start.Add(time.Minute),
				Usage: []Window{
					{Name: "Secondary", UsedPercent: 0},
					{Name: "Primary", Length: 5 * time.Hour, UsedPercent: 99.99, ResetsAt: start.Add(time.Hour)},
					{Name: "Primary", UsedPercent: 1},
					{Name: "not a word", UsedPercent: 7}, {Name: "ALongWordThatIsNoName", UsedPercent: 7},
					{Name: "Tokens", UsedPercent: 140}, {Name: "Requests", UsedPercent: math.NaN()}, {Name: "Spare"},
				}},
		}
	})).Accounts
	want := []v1alpha1.ReplicaAccount{
		{Name: "silent", State: "Usable"},
		{Name: "told", State: "QuotaExhausted", Reason: "QuotaExhausted", Since: after(0), Until: after(time.Hour), NextProbe: after(time.Minute),
			Usage: []v1alpha1.UsageWindow{
				{Window: "Primary", Minutes: ptr.To[int32](300), UsedPercent: 99, ResetsAt: after(time.Hour)},
				{Window: "Requests"}, {Window: "Secondary"}, {Window: "Spare"},
			}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	raw, err := json.Marshal(got[0])
	if err != nil || strings.Contains(string(raw), "usage") {
		t.Errorf("%s, %v", raw, err)
	}
}

func TestRoutesThatStopTrafficComeFirst(t *testing.T) {
	routes := []Route{
		{Key: "api.openai.com/responses/http", State: "Closed", Openings: 1},
		{Key: "chatgpt.com/codex/websocket", State: "Open", OpenUntil: start.Add(11 * time.Second), Openings: 2, Reason: "first_event_timeout"},
		{Key: "chatgpt.com/codex/http", State: "half_open", Openings: 4, Reason: "ConnectFailure"},
		{Key: "an odd\nkey", State: "Open"},
		{Key: "api.openai.com/files/http", State: "Melting"},
		{Key: "api.openai.com/models/http", State: "Closed"},
	}
	session := Circuit{Key: "aaaaaaaaaaaa", Until: start.Add(time.Hour)}
	for range 10 {
		rand.Shuffle(len(routes), func(i, j int) { routes[i], routes[j] = routes[j], routes[i] })
		got := statusOf(snapshot(circuits(session), func(s *Snapshot) { s.Routes, s.Sessions.NotClosed = routes, 5 }))
		want := []v1alpha1.RouteStatus{
			{Key: "chatgpt.com/codex/websocket", State: "Open", OpenUntil: after(20 * time.Second), Openings: 2, Reason: "FirstEventTimeout"},
			{Key: "chatgpt.com/codex/http", State: "HalfOpen", Openings: 4, Reason: "ConnectFailure"},
			{Key: "api.openai.com/responses/http", State: "Closed", Openings: 1},
			{Key: "api.openai.com/models/http", State: "Closed"},
		}
		if diff := cmp.Diff(want, got.Routes); diff != "" || got.RoutesOmitted != 2 {
			t.Fatalf("%d omitted, %s", got.RoutesOmitted, diff)
		}
		scopes := ""
		for _, c := range got.Circuits {
			scopes += fmt.Sprintf("%s %s %s %s; ", c.Scope, c.Name, c.State, c.Reason)
		}
		if want := "Route chatgpt.com/codex/websocket Open FirstEventTimeout; "; !strings.HasPrefix(scopes, want) ||
			!strings.HasSuffix(scopes, "Session  Open ; ") || len(got.Circuits) != 4 {
			t.Fatalf("circuits are %s", scopes)
		}
		if *got.OpenCircuits != 8 || got.CircuitsOmitted != 4 {
			t.Fatalf("%d circuits, %d omitted, want 3 routes and 5 sessions, of which one is listed", *got.OpenCircuits, got.CircuitsOmitted)
		}
	}
}

func TestB94_RoutesAndLanesStayWithinTheSchema(t *testing.T) {
	const canary = "sk-canary"
	got := statusOf(snapshot(func(s *Snapshot) {
		for i := range 1000 {
			s.Routes = append(s.Routes, Route{Key: fmt.Sprintf("%s.%d/x/http", strings.Repeat("h", 250), i), State: "Open", Openings: 1 << 40,
				Reason: canary + " " + strings.Repeat("x", 99)})
			s.Lanes = append(s.Lanes, Lane{Lane: canary}, Lane{Lane: "HTTP", Inflight: -1, Queued: 1 << 40})
		}
		s.Accounts[0].Reason = canary
	}))
	seen := map[string]bool{}
	for _, r := range got.Routes {
		seen[r.Key] = true
		if len(r.Key) > v1alpha1.MaxRouteKey || r.Reason != "" {
			t.Errorf("got %+v", r)
		}
	}
	if len(seen) != v1alpha1.MaxStatusRoutes || got.RoutesOmitted != 992 || len(got.Circuits) != v1alpha1.MaxStatusCircuits || *got.OpenCircuits != 1000 {
		t.Errorf("%d different routes, %d omitted; %d circuits of %d", len(seen), got.RoutesOmitted, len(got.Circuits), *got.OpenCircuits)
	}
	want := []v1alpha1.LaneStatus{{Lane: "HTTP", Queued: 1<<31 - 1, Mode: "Unlimited"}}
	if diff := cmp.Diff(want, got.Lanes); diff != "" {
		t.Error(diff)
	}
	if raw, err := json.Marshal(got); err != nil || len(raw) > 12<<10 || strings.Contains(string(raw), canary) {
		t.Errorf("%d bytes, want at most 12 KiB without the canary: %v", len(raw), err)
	}
}

func TestALaneShowsItsLimitOrThatItHasNone(t *testing.T) {
	got := statusOf(snapshot(func(s *Snapshot) {
		s.Lanes = []Lane{{Lane: "HTTP", Inflight: 3, Queued: 1, Limit: 200}, {Lane: "Compact"}}
	})).Lanes
	want := []v1alpha1.LaneStatus{
		{Lane: "HTTP", Inflight: 3, Queued: 1, Mode: "Limited", Limit: ptr.To[int32](200)}, {Lane: "Compact", Mode: "Unlimited"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsWorthAReportOfTheUpstream(t *testing.T) {
	base := func(s *Snapshot) {
		s.Accounts[0].Usage = []Window{{Name: "Primary", UsedPercent: 40, ResetsAt: start.Add(time.Hour)}}
		s.Accounts[0].NextProbe = start.Add(time.Hour)
		s.Routes = []Route{{Key: "chatgpt.com/codex/http", State: "Closed"}}
		s.Lanes = []Lane{{Lane: "HTTP", Limit: 200, Inflight: 20}}
	}
	for name, tc := range map[string]struct {
		edit            func(*Snapshot)
		material, moved bool
	}{
		"nothing":             {func(*Snapshot) {}, false, false},
		"4 percent":           {func(s *Snapshot) { s.Accounts[0].Usage[0].UsedPercent = 44 }, false, false},
		"5 percent":           {func(s *Snapshot) { s.Accounts[0].Usage[0].UsedPercent = 45 }, false, true},
		"a window is over":    {func(s *Snapshot) { s.Accounts[0].Usage = nil }, false, true},
		"a new window":        {func(s *Snapshot) { s.Accounts[0].Usage[0].ResetsAt = start.Add(5 * time.Hour) }, false, true},
		"another rounding":    {func(s *Snapshot) { s.Accounts[0].Usage[0].ResetsAt = start.Add(time.Hour + time.Minute) }, false, false},
		"when it was learned": {func(s *Snapshot) { s.Accounts[0].Since = start }, false, false},
		"the next probe":      {func(s *Snapshot) { s.Accounts[0].NextProbe = start.Add(2 * time.Hour) }, false, true},
		"a local limit":       {func(s *Snapshot) { s.Accounts[0].Reason = "LocalLimit" }, false, true},
		"another reason": {func(s *Snapshot) {
			s.Accounts[0].State, s.Accounts[0].Reason = "CoolingDown", "Ejected"
		}, true, true},
		"a route opens":     {func(s *Snapshot) { s.Routes[0].State, s.Routes[0].OpenUntil = "Open", start }, true, true},
		"a route is probed": {func(s *Snapshot) { s.Routes[0].State = "HalfOpen" }, true, true},
		"a route more":      {func(s *Snapshot) { s.Routes = append(s.Routes, Route{Key: "x", State: "Closed"}) }, false, true},
		"turns wait":        {func(s *Snapshot) { s.Lanes[0].Queued = 1 }, false, true},
		"one turn more":     {func(s *Snapshot) { s.Lanes[0].Inflight = 21 }, false, false},
		"another limit":     {func(s *Snapshot) { s.Lanes[0].Limit = 100 }, false, true},
		"no limit":          {func(s *Snapshot) { s.Lanes[0].Limit = 0 }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := statusOf(snapshot(base)), statusOf(snapshot(base, tc.edit))
			if got := material(before, after); got != tc.material {
				t.Errorf("material: %v, want %v", got, tc.material)
			}
			if got := moved(before, after); got != tc.moved {
				t.Errorf("moved: %v, want %v", got, tc.moved)
			}
		})
	}
}

// Another replica's proof counts until somebody has used the account after it.
func TestB51_AReportSaysSinceWhenAnAccountIsLikeThat(t *testing.T) {
	d := dates{}
	step := func(what string, minute int, state string, until int, since int) {
		t.Helper()
		a := Account{Name: "a", State: state}
		if until != 0 {
			a.Until = start.Add(time.Duration(until) * time.Minute)
		}
		got := d.date([]Account{a}, start.Add(time.Duration(minute)*time.Minute))[0].Since
		if want := start.Add(time.Duration(since) * time.Minute); since < 0 && !got.IsZero() || since >= 0 && !got.Equal(want) {
			t.Fatalf("%s: since %s, want minute %d", what, got, since)
		}
	}
	step("usable from the start", 0, "Usable", 0, -1)
	step("quota", 1, "QuotaExhausted", 60, 1)
	step("still", 2, "QuotaExhausted", 60, 1)
	step("a new proof", 3, "QuotaExhausted", 90, 3)
	step("a success", 4, "Usable", 0, 4)
	step("still usable", 9, "Usable", 0, 4)
	step("disabled", 10, "Disabled", 0, 10)
	step("enabled again, which proves nothing", 11, "Usable", 0, -1)
	if d.date(nil, start); len(d) > 0 {
		t.Error("accounts that are gone are remembered")
	}
	step("a new process that learns it from others", 20, "QuotaExhausted", 60, 20)
	given := Account{Name: "a", State: "QuotaExhausted", Since: start.Add(time.Hour)}
	if got := d.date([]Account{given}, start)[0].Since; !got.Equal(given.Since) {
		t.Errorf("who knows it is not believed: %s", got)
	}
}
