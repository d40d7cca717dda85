package login

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causeway-dev/causeway/api/effective"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func seed(refresh, access string) *effective.Seed {
	return &effective.Seed{RefreshToken: refresh, AccessToken: access, IssuedAt: now, ExpiresAt: now.Add(10 * 24 * time.Hour)}
}

// fresh is a login that was refreshed a moment ago and serves for ten days.
func fresh(change ...func(*Record)) *Record {
	r := Record{}.Adopt(*seed("rt-0", "at-0"), now)
	r, _ = r.Settle(Intent{Generation: 1, Nonce: "n0"}, r.Seed, Grant{AccessToken: "at-1", RefreshToken: "rt-1", Lifetime: 10 * 24 * time.Hour}, now)
	for _, f := range change {
		f(&r)
	}
	return &r
}

func trouble(o Outcome, failures int) func(*Record) {
	return func(r *Record) { r.Trouble = &Trouble{Outcome: o, At: now, Failures: failures, Cause: "C"} }
}

func lifetime(d time.Duration) func(*Record) {
	return func(r *Record) { r.ExpiresAt = r.IssuedAt.Add(d) }
}

func TestNext(t *testing.T) {
	const day = 24 * time.Hour
	intent := func(r *Record) {
		r.Intent = &Intent{Generation: r.Generation, Nonce: "foreign", StartedAt: now.Add(time.Hour)}
	}
	loggedOut := func(r *Record) { r.RefreshToken = "" }
	lostRecord := func(r *Record) { *r = r.Lose(effective.CauseDenied) }
	for name, tc := range map[string]struct {
		facts Facts
		after time.Duration
		want  Step // At is not compared; see the tests of times
	}{
		"nothing at all":                  {Facts{}, 0, Step{}},
		"a seed":                          {Facts{Seed: seed("rt-0", "")}, 0, Step{Do: Adopt}},
		"a seed that another account has": {Facts{Seed: seed("rt-0", ""), Taken: true}, 0, Step{Do: Adopt}},
		"a new seed":                      {Facts{Seed: seed("rt-new", ""), Record: fresh()}, 0, Step{Do: Adopt}},
		"a new seed after the loss":       {Facts{Seed: seed("rt-new", ""), Record: fresh(lostRecord)}, 0, Step{Do: Adopt}},
		"a new seed during an exchange":   {Facts{Seed: seed("rt-new", ""), Record: fresh(intent), IntentSeen: now}, 0, Step{Do: Adopt}},
		"the seed it began with":          {Facts{Seed: seed("rt-0", ""), Record: fresh()}, 0, Step{}},
		"that seed after the loss":        {Facts{Seed: seed("rt-0", ""), Record: fresh(lostRecord)}, 0, Step{}},
		"a seed from before it": {Facts{Seed: seed("rt-old", ""), Record: fresh(func(r *Record) {
			r.Spent = []string{seed("rt-old", "").Digest()}
		})}, 0, Step{}},
		"a new seed that another account has": {Facts{Seed: seed("rt-new", ""), Record: fresh(), Taken: true}, 0, Step{}},
		"its own seed, had by an older account": {Facts{Seed: seed("rt-0", ""), Record: fresh(), Taken: true}, 0,
			Step{Do: Lose, Cause: effective.CauseDuplicate}},
		"a duplicate whose double is gone": {Facts{Seed: seed("rt-0", ""), Record: fresh(func(r *Record) { *r = r.Lose(effective.CauseDuplicate) })}, 0,
			Step{Do: Adopt}},
		"no access token yet": {Facts{Record: fresh(func(r *Record) { r.AccessToken = "" })}, 0, Step{Do: Refresh, Reason: ReasonFirst}},
		"young":               {Facts{Record: fresh()}, 7 * day, Step{}},
		"eight days old":      {Facts{Record: fresh()}, 8 * day, Step{Do: Refresh, Reason: ReasonAge}},
		"ends before it is old": {Facts{Record: fresh(lifetime(day))}, day - 4*time.Hour,
			Step{Do: Refresh, Reason: ReasonExpiry}},
		"long before its end":    {Facts{Record: fresh(lifetime(day))}, 12 * time.Hour, Step{}},
		"of unknown length, old": {Facts{Record: fresh(func(r *Record) { r.ExpiresAt = time.Time{} })}, 8 * day, Step{Do: Refresh, Reason: ReasonAge}},
		"T60: ended":             {Facts{Record: fresh(lifetime(time.Hour))}, 2 * time.Hour, Step{Do: Refresh, Reason: ReasonExpiry}},
		"made to have ended":     {Facts{Record: fresh(lifetime(-time.Hour))}, 59 * time.Second, Step{}},
		"made to have ended, a minute ago": {Facts{Record: fresh(lifetime(-time.Hour))}, time.Minute,
			Step{Do: Refresh, Reason: ReasonExpiry}},

		"rejected":                     {Facts{Record: fresh(), Rejected: 2}, 0, Step{Do: Refresh, Reason: ReasonRejected}},
		"B59: an earlier one rejected": {Facts{Record: fresh(), Rejected: 1}, 0, Step{}},
		"rejected again at once":       {Facts{Record: fresh(func(r *Record) { r.Rejections = 1 }), Rejected: 2}, time.Second, Step{}},
		"rejected again": {Facts{Record: fresh(func(r *Record) { r.Rejections = 1 }), Rejected: 2}, time.Minute,
			Step{Do: Refresh, Reason: ReasonRejected}},
		"rejected all the time": {Facts{Record: fresh(func(r *Record) { r.Rejections = 9 }), Rejected: 2}, 29 * time.Minute, Step{}},

		"B56: somebody exchanges it":        {Facts{Record: fresh(intent), IntentSeen: now, Rejected: 2}, IntentLife - 1, Step{}},
		"somebody did not settle":           {Facts{Record: fresh(intent), IntentSeen: now}, IntentLife, Step{Do: Refresh, Reason: ReasonUnsettled}},
		"B57: the reply got lost":           {Facts{Record: fresh(trouble(Unknown, 1)), Rejected: 2}, IntentLife - 1, Step{}},
		"the reply got lost, after a while": {Facts{Record: fresh(trouble(Unknown, 1)), Rejected: 2}, IntentLife * 5 / 4, Step{Do: Refresh, Reason: ReasonRejected}},
		"unreachable":                       {Facts{Record: fresh(trouble(Unreachable, 1)), Rejected: 2}, 4 * time.Second, Step{}},
		"unreachable, after a while":        {Facts{Record: fresh(trouble(Unreachable, 1)), Rejected: 2}, 7 * time.Second, Step{Do: Refresh, Reason: ReasonRejected}},
		"unreachable for long":              {Facts{Record: fresh(trouble(Unreachable, 99)), Rejected: 2}, 299 * time.Second, Step{}},
		"unreachable for long, then":        {Facts{Record: fresh(trouble(Unreachable, 99)), Rejected: 2}, 375 * time.Second, Step{Do: Refresh, Reason: ReasonRejected}},
		"refused":                           {Facts{Record: fresh(trouble(Refused, 1)), Rejected: 2}, 59 * time.Second, Step{}},
		"B56: denied a moment ago":          {Facts{Record: fresh(trouble(Denied, 1)), Rejected: 2}, 5*time.Second - 1, Step{}},
		"denied, and nobody else had won":   {Facts{Record: fresh(trouble(Denied, 1)), Rejected: 2}, 5 * time.Second, Step{Do: Lose, Cause: "C"}},
		"lost":                              {Facts{Record: fresh(lostRecord)}, day, Step{}},
		"T60: lost and ended":               {Facts{Record: fresh(lostRecord)}, 10 * day, Step{Do: Drop}},
		"T60: lost and rejected":            {Facts{Record: fresh(lostRecord), Rejected: 2}, 0, Step{Do: Drop}},
		"lost and dropped":                  {Facts{Record: fresh(lostRecord, func(r *Record) { *r = r.Drop() }), Rejected: 2}, 0, Step{}},
		"fixed":                             {Facts{Record: fresh(loggedOut)}, 9 * day, Step{}},
		"fixed and ended":                   {Facts{Record: fresh(loggedOut)}, 10 * day, Step{Do: Lose, Cause: effective.CauseExpired}},
		"fixed and rejected":                {Facts{Record: fresh(loggedOut), Rejected: 2}, 0, Step{Do: Lose, Cause: effective.CauseRejected}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.facts.Key, tc.facts.Issuer = "ns/team/a", true
			got := Next(tc.facts, now.Add(tc.after))
			if got.Do == Rest && !got.At.IsZero() && !got.At.After(now.Add(tc.after)) {
				t.Errorf("it rests until %v, which has passed", got.At)
			}
			got.At = time.Time{}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestNobodyToAskIsNoReasonToAsk(t *testing.T) {
	if got := Next(Facts{Record: fresh(), Rejected: 2}, now); got.Do != Lose || got.Cause != effective.CauseRejected {
		t.Errorf("got %+v", got)
	}
}

// TestFiftyAccountsAreNotRefreshedAtOneMoment: logins of one day come due over
// hours, and each before the limit.
func TestFiftyAccountsAreNotRefreshedAtOneMoment(t *testing.T) {
	for name, tc := range map[string]struct {
		life, earliest, latest time.Duration
	}{
		"ten days":     {10 * 24 * time.Hour, 7*24*time.Hour + 12*time.Hour, 8 * 24 * time.Hour},
		"one hour":     {time.Hour, 42 * time.Minute, 48 * time.Minute},
		"five minutes": {5 * time.Minute, 2 * time.Minute, 150 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			tenths := map[time.Duration]int{}
			for i := range 50 {
				f := Facts{Key: "ns/team/" + string(rune('a'+i%26)) + string(rune('a'+i/26)), Record: fresh(lifetime(tc.life)), Issuer: true}
				at := Next(f, now).At.Sub(now)
				if at < tc.earliest || at > tc.latest {
					t.Errorf("due after %v, want %v to %v", at, tc.earliest, tc.latest)
				}
				tenths[(at-tc.earliest)*10/(tc.latest-tc.earliest)]++
			}
			for tenth, n := range tenths {
				if n > 15 {
					t.Errorf("%d of 50 are due in tenth %d of the time", n, tenth)
				}
			}
			if len(tenths) < 7 {
				t.Errorf("only %d tenths of the time are used: %v", len(tenths), tenths)
			}
		})
	}
}

// TestEveryRestHasAnEnd: whatever a record holds, time brings it to an action, but
// for what only a human can end.
func TestEveryRestHasAnEnd(t *testing.T) {
	for name, r := range map[string]*Record{
		"fresh": fresh(), "in doubt": fresh(trouble(Unknown, 3)), "unreachable": fresh(trouble(Unreachable, 50)), "refused": fresh(trouble(Refused, 50)),
		"denied": fresh(trouble(Denied, 1)), "intent": fresh(func(r *Record) { r.Intent = &Intent{Nonce: "x"} }),
		"rejected twice": fresh(func(r *Record) { r.Rejections = 2 }), "fixed": fresh(func(r *Record) { r.RefreshToken = "" }),
	} {
		t.Run(name, func(t *testing.T) {
			at := now
			for range 3 {
				step := Next(Facts{Key: "k", Record: r, Issuer: true, Rejected: r.Generation, IntentSeen: now}, at)
				if step.Do != Rest {
					return
				}
				if !step.At.After(at) {
					t.Fatalf("rests until %v at %v", step.At, at)
				}
				at = step.At
			}
			t.Error("it rests for ever")
		})
	}
}
