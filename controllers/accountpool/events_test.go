package accountpool

import (
	"testing"
	"time"

	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/notify"
)

// An account that is limited for seconds at a time is told of now and then.
func TestB51_AFlappingAccountMakesFewEvents(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(now)
	sink := events.NewFakeRecorder(1000)
	r := notify.NewRecorder(sink, clock)
	w := poolWorld()
	for i := range 120 { // 10 minutes
		state := v1alpha1.AccountCondition("CoolingDown")
		if i%2 == 0 {
			state = "Usable"
		}
		reported(&w, "Usable", state)
		says(func(a *v1alpha1.ReplicaAccount) {
			if a.State != "Usable" {
				a.Reason, a.Until = "RateLimited", in(time.Duration(i*5+7)*time.Second)
			}
		})(&w)
		w.reports[0].Replica.Status.ReportedAt = in(clock.Now().Sub(now))
		after, _ := statusOf(w, clock.Now())
		r.Send(w.pool, eventsOf(w.pool, after)...)
		w.pool = after
		clock.SetTime(clock.Now().Add(5 * time.Second))
	}
	if n := len(sink.Events); n < 2 || n > 4 {
		t.Errorf("%d events in 10 minutes, want at least one of each kind and at most 4", n)
	}
}
