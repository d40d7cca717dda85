package accountpool

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causeway-dev/causeway/api/bundle"
	apieffective "github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/conditions"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
)

func in(d time.Duration) *metav1.Time {
	t := metav1.NewTime(now.Add(d))
	return &t
}

// says makes the one proxy report this of account b.
func says(change func(*v1alpha1.ReplicaAccount)) func(*world) {
	return func(w *world) { change(&w.reports[0].Replica.Status.Accounts[1]) }
}

// loginOfB makes b an OAuth account whose login is in this state.
func loginOfB(l apieffective.Login) func(*world) {
	return func(w *world) {
		w.pool.Spec.Accounts[1].APIKey = nil
		w.pool.Spec.Accounts[1].OAuth = &v1alpha1.OAuth{SeedSecretRef: v1alpha1.SecretKeyReference{Name: "logins", Key: "b"}}
		w.secrets["logins"] = map[string][]byte{"b": []byte("rt_seed")}
		raw, err := json.Marshal(l)
		if err != nil {
			panic(err)
		}
		w.secrets[apieffective.LoginSecretName("team", "b")] = map[string][]byte{apieffective.LoginKey: raw}
	}
}

func TestB42_AnAccountSaysWhyUntilWhenAndWhatToDo(t *testing.T) {
	token := bundle.Credential{AccessToken: "at-b"}
	for name, tc := range map[string]struct {
		change []func(*world)
		state  v1alpha1.AccountCondition
		reason string
		words  []string // of the message
	}{
		"usable": {nil, "Usable", "", nil},
		"quota": {[]func(*world){says(func(a *v1alpha1.ReplicaAccount) {
			a.State, a.Reason, a.Until, a.NextProbe = "QuotaExhausted", "QuotaExhausted", in(time.Hour), in(10*time.Minute)
		})}, "QuotaExhausted", "QuotaExhausted",
			[]string{"until 2026-01-02 04:05 UTC", "from 03:15 UTC on", "kubectl annotate ap team causeway.dev/reset-cooldowns=b=$(date +%s) --overwrite"}},
		"rate limit": {[]func(*world){says(func(a *v1alpha1.ReplicaAccount) {
			a.State, a.Reason, a.Until = "CoolingDown", "RateLimited", in(time.Second)
		})}, "CoolingDown", "RateLimited", []string{"until 2026-01-02 03:05 UTC", "nothing to do"}},
		"no connection": {[]func(*world){says(func(a *v1alpha1.ReplicaAccount) {
			a.State, a.Reason, a.Until = "CoolingDown", "ConnectFailed", in(time.Minute)
		})}, "CoolingDown", "ConnectFailed", []string{"until", "provider.endpoint"}},
		"ejected": {[]func(*world){says(func(a *v1alpha1.ReplicaAccount) {
			a.State, a.Reason, a.Until = "CoolingDown", "Ejected", in(time.Minute)
		})}, "CoolingDown", "Ejected", []string{"in a row", "until"}},
		"held back": {[]func(*world){says(func(a *v1alpha1.ReplicaAccount) { a.Reason = "LocalLimit" })},
			"Usable", "LocalLimit", []string{"raise them"}},
		"a reason of a newer proxy": {[]func(*world){says(func(a *v1alpha1.ReplicaAccount) { a.State, a.Reason = "CoolingDown", "Hiccups" })},
			"CoolingDown", "Hiccups", []string{"(Hiccups)", "log"}},
		"rejected key": {[]func(*world){says(func(a *v1alpha1.ReplicaAccount) { a.State, a.Reason = "ReauthRequired", "AuthRejected" })},
			"ReauthRequired", "AuthRejected", []string{"rejects its API key", "key b of Secret keys"}},
		"deactivated": {[]func(*world){says(func(a *v1alpha1.ReplicaAccount) { a.State, a.Reason = "ReauthRequired", "Deactivated" })},
			"ReauthRequired", "Deactivated", []string{"deactivated", "Disabled"}},
		"rejected login that nobody refreshes": {[]func(*world){
			loginOfB(apieffective.Login{State: apieffective.LoginFixed, Credential: token}),
			says(func(a *v1alpha1.ReplicaAccount) { a.State, a.Reason = "ReauthRequired", "AuthRejected" })},
			"ReauthRequired", "AuthRejected", []string{"causeway-operator login", "key b of Secret logins"}},
		"rejected token that the operator refreshes": {[]func(*world){
			loginOfB(apieffective.Login{State: apieffective.LoginRefreshing, Credential: token}),
			says(func(a *v1alpha1.ReplicaAccount) { a.State, a.Reason = "ReauthRequired", "AuthRejected" })},
			"CoolingDown", "TokenRejected", []string{"nothing to do", "RefreshHealthy"}},
		"login that is over": {[]func(*world){loginOfB(apieffective.Login{State: apieffective.LoginReauth, Cause: apieffective.CauseReused})},
			"ReauthRequired", "ReauthRequired", []string{"already used", "key b of Secret logins"}},
		"no key":       {[]func(*world){func(w *world) { delete(w.secrets["keys"], "b") }}, "Unknown", "KeyNotFound", []string{"Secret keys has no key b"}},
		"not reported": {[]func(*world){func(w *world) { w.reports = nil }}, "Unknown", "NoReports", []string{"ReportsFresh"}},
		"not taken over": {[]func(*world){says(func(a *v1alpha1.ReplicaAccount) { a.State, a.Reason = "Unknown", "NoCredential" })},
			"Unknown", "NoCredential", []string{"Programmed"}},
		"proxies have an old spec": {[]func(*world){says(func(a *v1alpha1.ReplicaAccount) { a.State = "Draining" })},
			"Unknown", "ConfigPending", []string{"Programmed"}},
		"disabled": {[]func(*world){func(w *world) { w.pool.Spec.Accounts[1].State = v1alpha1.AccountDisabled }},
			"Disabled", "", []string{"set its state to Enabled"}},
		"draining": {[]func(*world){func(w *world) { w.pool.Spec.Accounts[1].State = v1alpha1.AccountDraining }},
			"Draining", "", []string{"set its state to Enabled"}},
	} {
		t.Run(name, func(t *testing.T) {
			after, _ := statusOf(poolWorld(tc.change...), now)
			b := after.Status.Accounts[1]
			if b.State != tc.state || b.Reason != tc.reason {
				t.Errorf("got %s/%s, want %s/%s", b.State, b.Reason, tc.state, tc.reason)
			}
			if (b.Message == "") != (tc.words == nil) || len(b.Message) > v1alpha1.MaxAccountMessage {
				t.Errorf("message of %d bytes: %q", len(b.Message), b.Message)
			}
			for _, word := range tc.words {
				if !strings.Contains(b.Message, word) {
					t.Errorf("%q does not say %q", b.Message, word)
				}
			}
		})
	}
}

func TestLongNamesLeaveTheWayOutInTheMessage(t *testing.T) {
	for n := range 254 {
		w := poolWorld(says(func(a *v1alpha1.ReplicaAccount) {
			a.State, a.Until, a.NextProbe = "QuotaExhausted", in(time.Hour), in(time.Minute)
		}))
		w.pool.Name = strings.Repeat("p", n)
		after, _ := statusOf(w, now)
		got := after.Status.Accounts[1].Message
		if len(got) > v1alpha1.MaxAccountMessage || !strings.HasSuffix(got, "--overwrite") && !strings.HasSuffix(got, "with a new text.") {
			t.Fatalf("%d bytes: %q", len(got), got)
		}
	}
}

func TestB54_ThePoolSaysThatNoAccountCanBeUsed(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b   v1alpha1.AccountCondition
		reason string
		word   string
	}{
		"cool-downs":          {"CoolingDown", "CoolingDown", v1alpha1.ReasonAllCoolingDown, "cool down"},
		"quotas":              {"QuotaExhausted", "CoolingDown", v1alpha1.ReasonAllCoolingDown, "tried sooner"},
		"quotas and logins":   {"QuotaExhausted", "ReauthRequired", v1alpha1.ReasonAllCoolingDown, "new credential"},
		"logins":              {"ReauthRequired", "Unknown", v1alpha1.ReasonAllReauthRequired, "new credential"},
		"cool-down and login": {"CoolingDown", "ReauthRequired", v1alpha1.ReasonAllCoolingDown, "status.accounts"},
	} {
		t.Run(name, func(t *testing.T) {
			before, _ := statusOf(poolWorld(), now)
			w := poolWorld(func(w *world) { w.pool = before; reported(w, tc.a, tc.b) })
			after, _ := statusOf(w, now)
			got := conditions.Find(after.Status.Conditions, v1alpha1.ConditionUsable)
			if got.Status != "False" || got.Reason != tc.reason || !strings.Contains(got.Message, tc.word) {
				t.Errorf("got %s/%s %q, want False/%s that says %q", got.Status, got.Reason, got.Message, tc.reason, tc.word)
			}
			if !conditions.IsTrue(after.Status.Conditions, v1alpha1.ConditionReady) {
				t.Error("the pool is not Ready, though its manifest is not at fault")
			}
			events := eventsOf(before, after)
			if last := events[len(events)-1]; !last.Warning || last.Reason != v1alpha1.EventAccountUnusable || last.Note != got.Message {
				t.Errorf("got events %+v, want a warning about the pool", events)
			}
			back, _ := statusOf(poolWorld(func(w *world) { w.pool = after }), now)
			if last := eventsOf(after, back); last[len(last)-1].Reason != v1alpha1.EventAccountRecovered {
				t.Errorf("got events %+v, want one that the pool is back", last)
			}
		})
	}
	t.Run("credentials", func(t *testing.T) {
		after, _ := statusOf(poolWorld(func(w *world) { w.secrets, w.reports = nil, nil }), now)
		if got := conditions.Find(after.Status.Conditions, v1alpha1.ConditionUsable); got.Status != "False" || got.Reason != v1alpha1.ReasonSecretNotFound {
			t.Errorf("got %s/%s, want False/SecretNotFound", got.Status, got.Reason)
		}
	})
}

func TestOneLineForAllThatAreUnusable(t *testing.T) {
	account := func(name string, state v1alpha1.AccountCondition, reason string, until *metav1.Time) v1alpha1.AccountStatus {
		return v1alpha1.AccountStatus{Name: name, State: state, Reason: reason, Until: until}
	}
	list := []v1alpha1.AccountStatus{
		account("fine", "Usable", "", nil), account("off", "Disabled", "", nil), account("new", "Unknown", "NoReports", nil),
		account("b", "QuotaExhausted", "QuotaExhausted", in(time.Hour)), account("c", "ReauthRequired", "AuthRejected", nil),
		account("d", "Unknown", "KeyNotFound", nil),
	}
	if got, want := unusableOf(list), "b: QuotaExhausted until 2026-01-02T04:05Z; c: ReauthRequired; d: KeyNotFound"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for n := range 65 {
		var many []v1alpha1.AccountStatus
		for i := range n {
			many = append(many, account(fmt.Sprintf("%s%02d", strings.Repeat("x", 38), i), "QuotaExhausted", "", in(time.Hour)))
		}
		got := unusableOf(many)
		if len(got) > v1alpha1.MaxUnusable || n > 1 && !strings.HasSuffix(got, " more") || strings.Contains(got, "and 0") || strings.HasPrefix(got, ";") {
			t.Errorf("of %d accounts: %q", n, got)
		}
	}
}

func TestB93_NothingThatTellsNothingIsWritten(t *testing.T) {
	w := poolWorld(says(func(a *v1alpha1.ReplicaAccount) {
		a.State, a.Reason, a.Until, a.NextProbe = "QuotaExhausted", "QuotaExhausted", in(time.Hour), in(10*time.Minute)
		a.Usage = []v1alpha1.UsageWindow{{Window: "Primary", UsedPercent: 96, ResetsAt: in(time.Hour)}}
	}))
	w.pool, _ = statusOf(w, now)
	for name, tc := range map[string]struct {
		change func(*v1alpha1.ReplicaAccount)
		news   bool
	}{
		"nothing":    {func(*v1alpha1.ReplicaAccount) {}, false},
		"more turns": {func(a *v1alpha1.ReplicaAccount) { a.Inflight = 9 }, false},
		"another rounding": {func(a *v1alpha1.ReplicaAccount) {
			a.Until, a.NextProbe = in(time.Hour+2*time.Second), in(10*time.Minute-time.Second)
		}, false},
		"a later end":           {func(a *v1alpha1.ReplicaAccount) { a.Until = in(2 * time.Hour) }, true},
		"the next probe":        {func(a *v1alpha1.ReplicaAccount) { a.NextProbe = in(20 * time.Minute) }, true},
		"two percent":           {func(a *v1alpha1.ReplicaAccount) { a.Usage[0].UsedPercent = 98 }, false},
		"used up":               {func(a *v1alpha1.ReplicaAccount) { a.Usage[0].UsedPercent = 100 }, true},
		"a new window":          {func(a *v1alpha1.ReplicaAccount) { a.Usage[0].ResetsAt = in(6 * time.Hour) }, true},
		"the window, less 90 s": {func(a *v1alpha1.ReplicaAccount) { a.Usage[0].ResetsAt = in(time.Hour - 90*time.Second) }, false},
		"usage not known":       {func(a *v1alpha1.ReplicaAccount) { a.Usage = nil }, true},
		"another state":         {func(a *v1alpha1.ReplicaAccount) { a.State = "CoolingDown" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			next := w
			next.reports = nil
			for _, r := range w.reports {
				next.reports = append(next.reports, reports.Report{Pod: r.Pod, Replica: r.Replica.DeepCopy()})
			}
			says(tc.change)(&next)
			after, _ := statusOf(next, now.Add(time.Minute))
			diff := cmp.Diff(w.pool.Status, after.Status)
			if (diff != "") != tc.news {
				t.Errorf("news: %v, want %v: %s", diff != "", tc.news, diff)
			}
			if was, is := w.pool.Status.Accounts[1], after.Status.Accounts[1]; was.State == is.State && !was.LastTransitionTime.Equal(is.LastTransitionTime) {
				t.Error("the transition time moved without a transition")
			}
		})
	}
}

func TestWhatIsNotKnownIsNotZero(t *testing.T) {
	after, _ := statusOf(poolWorld(says(func(a *v1alpha1.ReplicaAccount) {
		a.Usage = []v1alpha1.UsageWindow{{Window: "Primary", UsedPercent: 0}}
	})), now)
	raw, err := json.Marshal(after.Status.Accounts)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := after.Status.Accounts[0], after.Status.Accounts[1]; len(a.Usage) != 0 || len(b.Usage) != 1 ||
		strings.Count(string(raw), "usedPercent") != 1 || strings.Contains(string(raw), "resetsAt") {
		t.Errorf("got %s, want the use of b, which is known to be none", raw)
	}
}

func TestB94_TheStatusOfTheLargestPoolIsBounded(t *testing.T) {
	w := poolWorld()
	name := func(i int) string { return fmt.Sprintf("%s-%02d", strings.Repeat("a", 37), i) }
	minutes := int32(10080)
	w.pool.Spec.Accounts, w.reports[0].Replica.Status.Accounts = nil, nil
	for i := range 64 {
		key := v1alpha1.SecretKeyReference{Name: strings.Repeat("s", 253), Key: strings.Repeat("k", 253)}
		w.secrets[key.Name] = map[string][]byte{key.Key: []byte("sk")}
		w.pool.Spec.Accounts = append(w.pool.Spec.Accounts, v1alpha1.Account{Name: name(i), APIKey: &v1alpha1.APIKey{SecretRef: key}})
		a := v1alpha1.ReplicaAccount{Name: name(i), State: "ReauthRequired", Reason: strings.Repeat("R", 64), Until: in(time.Hour), NextProbe: in(time.Minute)}
		for n := range 9 {
			a.Usage = append(a.Usage, v1alpha1.UsageWindow{
				Window: fmt.Sprintf("WindowNumber%04d", n), Minutes: &minutes, UsedPercent: 100, ResetsAt: in(time.Hour)})
		}
		w.reports[0].Replica.Status.Accounts = append(w.reports[0].Replica.Status.Accounts, a)
	}
	w.policies = nil
	for i := range 1000 {
		w.policies = append(w.policies, fmt.Sprintf("%s-%03d", strings.Repeat("p", 36), i))
	}
	after, _ := statusOf(w, now)
	raw, err := json.Marshal(after.Status)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", len(raw))
	if len(raw) > 64<<10 || len(after.Status.Accounts[0].Usage) != v1alpha1.MaxUsageWindows {
		t.Errorf("%d bytes, %d windows", len(raw), len(after.Status.Accounts[0].Usage))
	}
	for _, a := range after.Status.Accounts {
		if len(a.Message) > v1alpha1.MaxAccountMessage || !utf8.ValidString(a.Message) {
			t.Errorf("message of %d bytes", len(a.Message))
		}
	}
}

func TestRefreshHealthy(t *testing.T) {
	token := bundle.Credential{AccessToken: "at-b"}
	for name, tc := range map[string]struct {
		change func(*world)
		status metav1.ConditionStatus
		reason string
	}{
		"keys only":   {func(*world) {}, "True", v1alpha1.ReasonNotApplicable},
		"refreshed":   {loginOfB(apieffective.Login{State: apieffective.LoginRefreshing, Credential: token}), "True", v1alpha1.ReasonRefreshing},
		"unreachable": {loginOfB(apieffective.Login{State: apieffective.LoginUnreachable, Credential: token}), "False", v1alpha1.ReasonIssuerUnreachable},
		"uncertain":   {loginOfB(apieffective.Login{State: apieffective.LoginUncertain, Credential: token}), "False", v1alpha1.ReasonRefreshUncertain},
		"over":        {loginOfB(apieffective.Login{State: apieffective.LoginReauth}), "False", v1alpha1.ReasonReauthRequired},
		"not taken over": {func(w *world) {
			loginOfB(apieffective.Login{})(w)
			delete(w.secrets, apieffective.LoginSecretName("team", "b"))
		}, "Unknown", v1alpha1.ReasonLoginPending},
	} {
		t.Run(name, func(t *testing.T) {
			after, _ := statusOf(poolWorld(tc.change), now)
			got := conditions.Find(after.Status.Conditions, v1alpha1.ConditionRefreshHealthy)
			if got.Status != tc.status || got.Reason != tc.reason {
				t.Errorf("got %s/%s %q, want %s/%s", got.Status, got.Reason, got.Message, tc.status, tc.reason)
			}
			if !conditions.IsTrue(after.Status.Conditions, v1alpha1.ConditionReady) {
				t.Errorf("a login that fares badly is no fault of the manifest: %+v", after.Status.Conditions)
			}
		})
	}
}

func TestAResetIsAWishAndNoSetting(t *testing.T) {
	plain, _ := statusOf(poolWorld(), now)
	annotated := func(value string) *v1alpha1.AccountPool {
		after, _ := statusOf(poolWorld(func(w *world) {
			w.pool.Annotations = map[string]string{v1alpha1.AnnotationResetCooldowns: value}
		}), now)
		return after
	}
	if good := annotated("b=1"); conditions.Find(good.Status.Conditions, v1alpha1.ConditionWarning) != nil || good.Status.EffectiveHash != plain.Status.EffectiveHash {
		t.Errorf("a good wish shows: %+v", good.Status)
	}
	bad := annotated("c=1")
	got := conditions.Find(bad.Status.Conditions, v1alpha1.ConditionWarning)
	if got == nil || got.Reason != v1alpha1.ReasonInvalidAnnotation || !strings.Contains(got.Message, "account c") {
		t.Errorf("got %+v, want a warning that names the account", got)
	}
	if !conditions.IsTrue(bad.Status.Conditions, v1alpha1.ConditionReady) {
		t.Error("an annotation made the pool unusable")
	}
}

func TestManyAccountsThatGoAtOnceAreOneEvent(t *testing.T) {
	before, after := &v1alpha1.AccountPool{}, &v1alpha1.AccountPool{}
	for i := range 30 {
		name := fmt.Sprintf("a%d", i)
		before.Status.Accounts = append(before.Status.Accounts, v1alpha1.AccountStatus{Name: name, State: "Usable"})
		after.Status.Accounts = append(after.Status.Accounts, v1alpha1.AccountStatus{Name: name, State: "QuotaExhausted"})
	}
	events := eventsOf(before, after)
	if len(events) != 1 || !strings.HasPrefix(events[0].Note, "30 accounts") {
		t.Errorf("got %+v, want one event", events)
	}
	if back := eventsOf(after, before); len(back) != 1 || back[0].Reason != v1alpha1.EventAccountRecovered {
		t.Errorf("got %+v, want one event", back)
	}
	if none := eventsOf(before, before); len(none) > 0 {
		t.Errorf("nothing happened, and %+v is told", none)
	}
}
