package bridgepolicy

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/conditions"
	"github.com/causeway-dev/causeway/controllers/internal/plan"
)

func TestConditionsOfARollout(t *testing.T) {
	w := world()
	planned := plan.Next(w, now)
	for name, tc := range map[string]struct {
		rollout plan.Rollout
		want    map[string]string // reasons of conditions; "" = absent
	}{
		"gate": {
			plan.Rollout{Step: v1alpha1.StepGate, UpToDate: plan.Verdict{Reason: v1alpha1.ReasonPromotionPending, Message: "m"}},
			map[string]string{v1alpha1.ConditionReconciling: v1alpha1.ReasonPromotionPending, v1alpha1.ConditionStalled: ""},
		},
		"a change waits": {
			plan.Rollout{Step: v1alpha1.StepDraining, Waiting: true, UpToDate: plan.Verdict{Reason: v1alpha1.ReasonRolloutInProgress, Message: "m"}},
			map[string]string{v1alpha1.ConditionReconciling: v1alpha1.ReasonWaitingForDrain},
		},
		"nothing but a drain": {
			plan.Rollout{Step: v1alpha1.StepDraining, UpToDate: plan.Verdict{OK: true, Reason: v1alpha1.ReasonActiveSlotIsWanted, Message: "m"}},
			map[string]string{v1alpha1.ConditionReconciling: "", v1alpha1.ConditionStalled: ""},
		},
		"failed": {
			plan.Rollout{FailedReason: "Deadline", UpToDate: plan.Verdict{Reason: v1alpha1.ReasonRolloutFailed, Message: "m"}},
			map[string]string{v1alpha1.ConditionStalled: v1alpha1.ReasonProgressDeadlineExceeded, v1alpha1.ConditionReconciling: ""},
		},
		"rolled back by a human": {
			plan.Rollout{FailedReason: "RolledBack", UpToDate: plan.Verdict{Reason: v1alpha1.ReasonRolloutFailed, Message: "m"}},
			map[string]string{v1alpha1.ConditionStalled: v1alpha1.ReasonRolloutFailed, v1alpha1.ConditionReconciling: ""},
		},
		"nobody has authority": {
			plan.Rollout{UpToDate: plan.Verdict{OK: true, Reason: v1alpha1.ReasonActiveSlotIsWanted, Message: "m"},
				Activation: plan.Activation{Verdict: plan.Verdict{Reason: v1alpha1.ReasonNoHolder, Message: "m"}}},
			map[string]string{v1alpha1.ConditionActivated: v1alpha1.ReasonNoHolder, v1alpha1.ConditionReady: v1alpha1.ReasonNoHolder},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := planned
			p.Rollout = tc.rollout
			if p.Rollout.Activation.Verdict.Reason == "" {
				p.Rollout.Activation.Verdict = plan.Verdict{OK: true, Reason: v1alpha1.ReasonSlotHoldsLease, Message: "m"}
			}
			got := statusOf(w, p, nil, now).Status.Conditions
			for kind, reason := range tc.want {
				c := conditions.Find(got, kind)
				is := ""
				if c != nil {
					is = c.Reason
				}
				if is != reason {
					t.Errorf("%s is %q, want %q", kind, is, reason)
				}
			}
		})
	}
}

func TestHistoryIsKeptShortAndInOrder(t *testing.T) {
	var list []v1alpha1.Promoted
	for i := range 9 {
		r := plan.Rollout{PromotedAt: now.Add(time.Duration(i) * time.Hour), Slots: []plan.SlotFacts{{Revision: string(rune('a' + i))}}}
		list = historyOf(historyOf(list, r), r) // looked at twice
	}
	var got []string
	for _, p := range list {
		got = append(got, p.Revision)
	}
	if want := "i,h,g,f,e"; strings.Join(got, ",") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

var errWrite = errors.New("refused")

func TestEventsOfARollout(t *testing.T) {
	w := world()
	p := plan.Next(w, now)
	p.Rollout.Told = []plan.Transition{
		{Reason: v1alpha1.EventPromoted, Slot: "green", Revision: "abc"},
		{Reason: v1alpha1.EventActivationForced, Slot: "blue", Revision: "def"},
		{Reason: v1alpha1.EventRolloutAborted, Slot: "green", Revision: "abc", Detail: "because"},
	}
	p.Rollout.Activation = plan.Activation{Slot: "green", Epoch: 3}
	w.Policy.Status.Activation = &v1alpha1.ActivationStatus{Slot: "blue", Epoch: 2, Since: &metav1.Time{Time: now}}
	notes := map[string]string{}
	for _, e := range eventsOf(w, p, statusOf(w, p, nil, now), nil) {
		notes[e.Reason] = e.Note
		if want := e.Reason == v1alpha1.EventActivationForced; strings.HasPrefix(e.Reason, "Activation") && e.Warning != want {
			t.Errorf("%s is a warning: %v", e.Reason, e.Warning)
		}
	}
	for reason, note := range map[string]string{
		v1alpha1.EventPromoted:           "Slot green with revision abc is active now",
		v1alpha1.EventActivationForced:   "Slot blue with revision def does not let go and is scaled to zero",
		v1alpha1.EventRolloutAborted:     "Candidate green with revision abc is given up: because",
		v1alpha1.EventActivationAcquired: "Slot green has authority with epoch 3",
	} {
		if notes[reason] != note {
			t.Errorf("%s says %q, want %q", reason, notes[reason], note)
		}
	}
	// What was not written is not told.
	if list := eventsOf(w, p, statusOf(w, p, nil, now), errWrite); len(list) > 0 && list[0].Reason == v1alpha1.EventPromoted {
		t.Error("a promotion is told that was not written")
	}
	p.Rollout.Activation, p.Rollout.Step = plan.Activation{Exists: true}, v1alpha1.StepIdle
	lost := activationEvents(w.Policy.Status.Activation, p)
	if len(lost) != 1 || lost[0].Reason != v1alpha1.EventActivationLost || !lost[0].Warning {
		t.Errorf("got %+v", lost)
	}
}
