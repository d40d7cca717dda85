package reports

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// claim is what one replica says. since and until are minutes from now; 0 = not said.
func claim(state v1alpha1.AccountCondition, since, until int) v1alpha1.ReplicaAccount {
	c := v1alpha1.ReplicaAccount{Name: "a", State: state}
	if since != 0 {
		c.Since = at(time.Duration(since) * time.Minute)
	}
	if until != 0 {
		c.Until = at(time.Duration(until) * time.Minute)
	}
	return c
}

// numbered is a claim about a numbered credential.
func numbered(generation int64, c v1alpha1.ReplicaAccount) v1alpha1.ReplicaAccount {
	c.CredentialGeneration = generation
	return c
}

func TestB51_OneViewOfAnAccountOutOfManyReplicas(t *testing.T) {
	usable, unknown := claim("Usable", 0, 0), claim("Unknown", 0, 0)
	for name, tc := range map[string]struct {
		claims []v1alpha1.ReplicaAccount
		want   v1alpha1.AccountCondition
		until  int
	}{
		"one that can use it":                       {[]v1alpha1.ReplicaAccount{usable}, "Usable", 0},
		"a failed connect of one":                   {[]v1alpha1.ReplicaAccount{usable, claim("CoolingDown", -1, 1)}, "Usable", 0},
		"all cool down: until the last":             {[]v1alpha1.ReplicaAccount{claim("CoolingDown", -1, 60), claim("CoolingDown", -1, 1)}, "CoolingDown", 60},
		"quota, and another that has not heard":     {[]v1alpha1.ReplicaAccount{usable, claim("QuotaExhausted", -1, 60)}, "QuotaExhausted", 60},
		"quota, and a use before it":                {[]v1alpha1.ReplicaAccount{claim("Usable", -9, 0), claim("QuotaExhausted", -1, 60)}, "QuotaExhausted", 60},
		"quota, and a use after it":                 {[]v1alpha1.ReplicaAccount{claim("Usable", -1, 0), claim("QuotaExhausted", -9, 60)}, "Usable", 0},
		"two proofs, and a use between":             {[]v1alpha1.ReplicaAccount{claim("QuotaExhausted", -9, 60), claim("Usable", -5, 0), claim("QuotaExhausted", -1, 30)}, "QuotaExhausted", 30},
		"the newer proof: accepted, but used up":    {[]v1alpha1.ReplicaAccount{claim("ReauthRequired", -9, 60), claim("QuotaExhausted", -1, 60)}, "QuotaExhausted", 60},
		"the newer proof: rejected":                 {[]v1alpha1.ReplicaAccount{claim("QuotaExhausted", -9, 60), claim("ReauthRequired", -1, 0)}, "ReauthRequired", 0},
		"proofs without a time: the worse":          {[]v1alpha1.ReplicaAccount{claim("QuotaExhausted", 0, 60), claim("ReauthRequired", 0, 0)}, "ReauthRequired", 0},
		"rejected here, never used there":           {[]v1alpha1.ReplicaAccount{usable, claim("ReauthRequired", -1, 0)}, "ReauthRequired", 0},
		"quota goes before a cool-down":             {[]v1alpha1.ReplicaAccount{claim("CoolingDown", -1, 90), claim("QuotaExhausted", -9, 60)}, "QuotaExhausted", 60},
		"its time is over, nobody else speaks":      {[]v1alpha1.ReplicaAccount{claim("QuotaExhausted", -9, -1), unknown}, "QuotaExhausted", -1},
		"its time is over, another can use it":      {[]v1alpha1.ReplicaAccount{claim("QuotaExhausted", -9, -1), usable}, "Usable", 0},
		"its time is over, another cools down":      {[]v1alpha1.ReplicaAccount{claim("QuotaExhausted", -9, -1), claim("CoolingDown", -5, 1)}, "CoolingDown", 1},
		"one does not know it":                      {[]v1alpha1.ReplicaAccount{unknown, usable}, "Usable", 0},
		"rejected, and replaced at another":         {[]v1alpha1.ReplicaAccount{numbered(3, claim("ReauthRequired", -1, 0)), numbered(4, usable)}, "Usable", 0},
		"the newest is rejected":                    {[]v1alpha1.ReplicaAccount{numbered(4, claim("ReauthRequired", -1, 0)), numbered(3, usable)}, "ReauthRequired", 0},
		"nobody knows it":                           {[]v1alpha1.ReplicaAccount{unknown, unknown}, "Unknown", 0},
		"one has not heard that it is enabled":      {[]v1alpha1.ReplicaAccount{claim("Disabled", 0, 0), usable}, "Usable", 0},
		"one has not heard, the other is exhausted": {[]v1alpha1.ReplicaAccount{claim("Draining", 0, 0), claim("QuotaExhausted", -1, 60)}, "QuotaExhausted", 60},
	} {
		t.Run(name, func(t *testing.T) {
			for range 6 {
				rand.Shuffle(len(tc.claims), func(i, j int) { tc.claims[i], tc.claims[j] = tc.claims[j], tc.claims[i] })
				got := mergeAccount(tc.claims, now)
				if got.State != tc.want || !got.Until.Equal(claim("", 0, tc.until).Until) {
					t.Fatalf("of %+v came %s until %v, want %s until %d min", tc.claims, got.State, got.Until, tc.want, tc.until)
				}
			}
		})
	}
}

func TestUsageOfAWindowIsTheNewestThatAnybodyKnows(t *testing.T) {
	window := func(name string, used int32, resets time.Duration) v1alpha1.UsageWindow {
		u := v1alpha1.UsageWindow{Window: name, UsedPercent: used}
		if resets != 0 {
			u.ResetsAt = at(resets)
		}
		return u
	}
	says := func(list ...v1alpha1.UsageWindow) v1alpha1.ReplicaAccount {
		return v1alpha1.ReplicaAccount{Name: "a", State: "Usable", Usage: list}
	}
	claims := []v1alpha1.ReplicaAccount{
		says(window("Primary", 80, time.Hour), window("Secondary", 100, -time.Minute)),
		says(window("Primary", 90, time.Hour-time.Minute), window("Tokens", 0, 0)),
		says(window("Primary", 95, time.Minute), window("Requests", 99, time.Minute)),
		says(window("Requests", 3, 5*time.Hour)),
		says(),
	}
	want := []v1alpha1.UsageWindow{
		window("Primary", 90, time.Hour),   // the same window, seen later by the second
		window("Requests", 3, 5*time.Hour), // a new window
		window("Tokens", 0, 0),             // known to be unused; Secondary is over, thus not known
	}
	for range 10 {
		rand.Shuffle(len(claims), func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
		if diff := cmp.Diff(want, mergeAccount(claims, now).Usage); diff != "" {
			t.Fatal(diff)
		}
	}
	if got := mergeAccount([]v1alpha1.ReplicaAccount{says()}, now).Usage; got != nil {
		t.Errorf("nobody knows and %+v is shown", got)
	}
}

func TestTheNextProbeIsTheFirstOfThoseThatSaySo(t *testing.T) {
	probed := func(state v1alpha1.AccountCondition, minutes int) v1alpha1.ReplicaAccount {
		c := claim(state, -1, 60)
		c.NextProbe = at(time.Duration(minutes) * time.Minute)
		return c
	}
	got := mergeAccount([]v1alpha1.ReplicaAccount{probed("QuotaExhausted", 9), probed("QuotaExhausted", 5), probed("CoolingDown", 1)}, now)
	if !got.NextProbe.Equal(at(5 * time.Minute)) {
		t.Errorf("got %v, want that of the replica that probes the quota first", got.NextProbe)
	}
}

func TestTheOrderOfClaimsDoesNotMatter(t *testing.T) {
	states := []v1alpha1.AccountCondition{"Usable", "CoolingDown", "QuotaExhausted", "ReauthRequired", "Unknown", "Disabled", "Draining"}
	r := rand.New(rand.NewPCG(1, 2))
	some := func(n int) *metav1.Time {
		if m := r.IntN(n) - n/2; m%3 != 0 {
			return at(time.Duration(m) * time.Minute)
		}
		return nil
	}
	for range 2000 {
		var claims []v1alpha1.ReplicaAccount
		for range 1 + r.IntN(5) {
			c := v1alpha1.ReplicaAccount{Name: "a", State: states[r.IntN(len(states))], Since: some(10), Until: some(20), NextProbe: some(8),
				Reason: fmt.Sprintf("Reason%d", r.IntN(2))}
			for i := range r.IntN(3) {
				c.Usage = append(c.Usage, v1alpha1.UsageWindow{Window: fmt.Sprintf("W%d", i), UsedPercent: r.Int32N(101), ResetsAt: some(8)})
			}
			claims = append(claims, c)
		}
		want := mergeAccount(claims, now)
		for range 4 {
			r.Shuffle(len(claims), func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
			if diff := cmp.Diff(want, mergeAccount(claims, now)); diff != "" {
				t.Fatalf("of %+v: %s", claims, diff)
			}
		}
	}
}
