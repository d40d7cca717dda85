package plan

import (
	"testing"
	"time"

	"k8s.io/utils/ptr"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// TestT38AnOperatorThatDiesAfterEachWriteFinishesTheRollout lets a rollout be made
// by operators of which each does one write and is gone.
func TestT38AnOperatorThatDiesAfterEachWriteFinishesTheRollout(t *testing.T) {
	s := newStory(t)
	s.oneWrite = true
	s.streams(v1alpha1.SlotBlue, 1)
	wanted := s.image("localhost/causeway-proxy:2")
	p := s.until(v1alpha1.StepDraining)
	if p.Active != v1alpha1.SlotGreen || s.w.Slots["green"].Annotations[v1alpha1.AnnotationRevision] != wanted || s.epoch != 2 {
		t.Errorf("%s is active with epoch %d, want green with 2", p.Active, s.epoch)
	}
	s.streams(v1alpha1.SlotBlue, 0)
	s.until(v1alpha1.StepRetained)
	s.until(v1alpha1.StepIdle)
	if n := len(s.of(v1alpha1.SlotBlue)); n != 0 {
		t.Errorf("%d pods of blue are left", n)
	}
}

// TestT38AnOperatorThatDiesOnceAnywhere dies after the n-th write of a rollout,
// for every n, and leaves the world alone for a while.
func TestT38AnOperatorThatDiesOnceAnywhere(t *testing.T) {
	for n := 1; ; n++ {
		s := newStory(t)
		s.dieAfter = n
		s.image("localhost/causeway-proxy:2")
		for range 2000 {
			p := s.calm()
			if s.dead { // nobody is there for two minutes
				s.now = s.now.Add(2 * time.Minute)
				s.dead = false
			}
			if p.Active == v1alpha1.SlotGreen && p.Rollout.Step == v1alpha1.StepRetained {
				break
			}
			s.now = s.now.Add(s.pause(p))
		}
		if p := s.reconciled(); p.Active != v1alpha1.SlotGreen || !p.Rollout.UpToDate.OK || s.epoch != 2 {
			t.Fatalf("died after %d writes: %s is active, epoch %d, %+v\n%s", n, p.Active, s.epoch, p.Rollout.UpToDate, s.log.String())
		}
		if s.dieAfter > 0 {
			t.Logf("a rollout has %d writes", n-1)
			return // it was done before it could die
		}
	}
}

// B87: what is as it shall be is not written again, however often it is looked at.
func TestB87NothingIsWrittenWhileNothingChanges(t *testing.T) {
	s := newStory(t)
	s.image("localhost/causeway-proxy:2")
	s.until(v1alpha1.StepRetained)
	s.until(v1alpha1.StepIdle)
	s.settle(time.Minute)
	for range 1000 {
		s.now = s.now.Add(time.Minute)
		if _, changed := s.reconcile(s.world(), -1); changed {
			t.Fatalf("something was written:\n%s", s.log.String())
		}
	}
}

// T51: an operator that sees the world as it was before a promotion changes nothing.
func TestT51AStaleOperatorChangesNothing(t *testing.T) {
	s := newStory(t)
	worlds := []World{s.world()}
	s.image("localhost/causeway-proxy:2")
	for range 400 {
		_, changed := s.once()
		if changed {
			worlds = append(worlds, s.world())
		}
		s.now = s.now.Add(time.Second)
	}
	if a := s.reconciled().Active; a != v1alpha1.SlotGreen {
		t.Fatalf("%s is active", a)
	}
	now := s.world()
	for i, w := range worlds[:len(worlds)-1] {
		before := s.version
		route := s.w.Service.Spec.Selector[v1alpha1.LabelSlot]
		s.reconcile(w, -1)
		if got := s.w.Service.Spec.Selector[v1alpha1.LabelSlot]; got != route {
			t.Errorf("the world of %d changes ago led the route from %s to %q", len(worlds)-i, route, got)
		}
		// It sees another spec, too, and may write its configuration; slots and Lease stay.
		w := s.world()
		for name := range now.Slots {
			if w.Slots[name].ResourceVersion != now.Slots[name].ResourceVersion {
				t.Errorf("the world of %d changes ago changed slot %s (version %d)", len(worlds)-i, name, before)
			}
		}
		if readLease(w.Lease).asked != v1alpha1.SlotGreen {
			t.Errorf("the world of %d changes ago asked for %s", len(worlds)-i, readLease(w.Lease).asked)
		}
	}
	for i, w := range worlds {
		w.Service = s.world().Service // all is old but this
		s.reconcile(w, -1)
		if got := s.w.Service.Spec.Selector[v1alpha1.LabelSlot]; got != string(v1alpha1.SlotGreen) {
			t.Fatalf("the world of %d changes ago led the route to %q", len(worlds)-i, got)
		}
	}
	// Each kind of its own age is no better.
	for i := range worlds {
		for j := range worlds {
			w := s.world()
			w.Slots, w.Lease, w.Service = worlds[i].Slots, worlds[j].Lease, worlds[(i+j)%len(worlds)].Service
			s.reconcile(w, -1)
			if got := s.w.Service.Spec.Selector[v1alpha1.LabelSlot]; got != string(v1alpha1.SlotGreen) {
				t.Fatalf("slots of %d, Lease of %d: the route leads to %q\n%s", i, j, got, s.log.String())
			}
		}
	}
}

// B90: who decides on an old look at the Lease forces nobody.
func TestB90ASlotIsForcedOnlyWhileItHolds(t *testing.T) {
	s := newStory(t)
	for _, p := range s.proxies {
		p.image = imageDeaf
	}
	s.image("localhost/causeway-proxy:2")
	s.until(v1alpha1.StepHandover)
	s.now = s.now.Add(3 * time.Minute)
	held := s.world()
	if p := Next(held, s.now); len(p.Rollout.Told) == 0 || p.Rollout.Told[0].Reason != v1alpha1.EventActivationForced {
		t.Fatalf("a slot that holds on is not forced: %+v", p.Rollout)
	}
	s.hold("", false) // it lets go in that moment
	s.reconcile(held, -1)
	if n := *s.w.Slots["blue"].Spec.Replicas; n != 2 {
		t.Errorf("blue has %d replicas", n)
	}
}

// The clock of one operator is an hour behind that of the one before.
func TestPromotionsAreOrderedWhateverTheClocksSay(t *testing.T) {
	s := newStory(t)
	s.now = s.now.Add(-time.Hour)
	s.image("localhost/causeway-proxy:2")
	for range 60 {
		s.calm()
		s.now = s.now.Add(time.Second)
	}
	p := s.reconciled()
	if p.Active != v1alpha1.SlotGreen || readLease(s.w.Lease).asked != v1alpha1.SlotGreen {
		t.Errorf("%s is active, %s is asked", p.Active, readLease(s.w.Lease).asked)
	}
	if s.epoch != 2 {
		t.Errorf("the epoch is %d: authority went back and forth", s.epoch)
	}
}

// B88: a change of size is no rollout, and a candidate is as large as what it follows.
func TestB88SizesFollowTheActiveSlot(t *testing.T) {
	s := newStory(t)
	s.settings(func(spec *v1alpha1.BridgePolicySpec) { spec.Replicas = ptr.To[int32](5) })
	s.settle(time.Minute)
	if d := s.w.Slots["green"]; d != nil || *s.w.Slots["blue"].Spec.Replicas != 5 {
		t.Fatalf("green is %v, blue has %d", d, *s.w.Slots["blue"].Spec.Replicas)
	}
	s.image("localhost/causeway-proxy:2")
	s.until(v1alpha1.StepReady)
	s.settings(func(spec *v1alpha1.BridgePolicySpec) { spec.Replicas = ptr.To[int32](7) })
	s.until(v1alpha1.StepSwitching)
	if n := len(s.of("green")); n != 7 {
		t.Errorf("green took over with %d pods, want 7", n)
	}
	s.until(v1alpha1.StepRetained)
	s.settings(func(spec *v1alpha1.BridgePolicySpec) { spec.Replicas = ptr.To[int32](3) })
	s.settle(time.Minute)
	if *s.w.Slots["blue"].Spec.Replicas != 7 || *s.w.Slots["green"].Spec.Replicas != 3 {
		t.Errorf("blue is kept at %d, green at %d; want 7 and 3", *s.w.Slots["blue"].Spec.Replicas, *s.w.Slots["green"].Spec.Replicas)
	}
}

// B85: pods that are ready and do not serve the wanted configuration take over nothing.
func TestB85ACandidateThatDoesNotAcknowledgeDoesNotTakeOver(t *testing.T) {
	s := newStory(t)
	s.image("localhost/causeway-proxy:2")
	s.until(v1alpha1.StepReady)
	for _, p := range s.of("green") {
		p.replica.Status.ObservedConfig.State = v1alpha1.ConfigRejected
	}
	s.now = s.now.Add(time.Minute)
	p := Next(s.world(), s.now)
	if p.Rollout.Step != v1alpha1.StepPreparing || p.Programmed.Status != "True" {
		t.Errorf("step %s, Programmed %s: want a candidate that waits, and users that are served", p.Rollout.Step, p.Programmed.Status)
	}
}

// T48, B92: whoever writes into the Lease by hand is outlived.
func TestT48_B92_AForeignHolderIsReported(t *testing.T) {
	s := newStory(t)
	s.w.Lease.Spec.HolderIdentity = ptr.To("somebody/else")
	p := s.reconciled()
	if v := p.Rollout.Activation.Verdict; v.OK || v.Reason != v1alpha1.ReasonFenceViolation {
		t.Errorf("got %+v", v)
	}
	s.w.Lease.Spec.HolderIdentity = ptr.To("")
	s.w.Lease.Annotations[v1alpha1.AnnotationEpoch] = "0"
	if v := s.reconciled().Rollout.Activation.Verdict; v.Reason != v1alpha1.ReasonFenceViolation {
		t.Errorf("an epoch that fell is %+v", v)
	}
}

// T48: whoever held a Lease that was deleted in the middle of a hand-over is given
// the time to notice before another one is asked.
func TestT48ALeaseDeletedDuringAHandoverAsksTheOldSlotFirst(t *testing.T) {
	s := newStory(t)
	for _, p := range s.proxies {
		p.image = imageDeaf
	}
	s.image("localhost/causeway-proxy:2")
	s.until(v1alpha1.StepHandover)
	s.w.Lease = nil
	s.reconcile(s.world(), -1)
	if l := readLease(s.w.Lease); l.asked != v1alpha1.SlotBlue || l.epoch != 1 {
		t.Fatalf("the new Lease asks for %s with epoch %d", l.asked, l.epoch)
	}
	s.reconcile(s.world(), -1)
	if l := readLease(s.w.Lease); l.asked != v1alpha1.SlotBlue {
		t.Errorf("%s is asked at once", l.asked)
	}
	s.now = s.now.Add(time.Minute)
	s.reconcile(s.world(), -1)
	if l := readLease(s.w.Lease); l.asked != v1alpha1.SlotGreen {
		t.Errorf("%s is asked a minute later", l.asked)
	}
}

// A Deployment that somebody deleted is made anew, and nothing is promoted by it.
func TestADeletedSlotIsMadeAnew(t *testing.T) {
	for _, slot := range []v1alpha1.SlotName{v1alpha1.SlotBlue, v1alpha1.SlotGreen} {
		s := newStory(t)
		s.image("localhost/causeway-proxy:2")
		s.until(v1alpha1.StepRetained)
		for _, p := range s.of(slot) {
			s.end(p)
		}
		delete(s.w.Slots, slot)
		s.served = false // they were deleted, and nobody can help that
		p := s.settle(2 * time.Minute)
		if p.Active != v1alpha1.SlotGreen || len(s.of("green")) != 2 {
			t.Errorf("%s deleted: %s is active with %d pods", slot, p.Active, len(s.of("green")))
		}
	}
}

// A hand-over soon after the first start is one, and no back and forth.
func TestAYoungLeaseIsHandedOverOnce(t *testing.T) {
	s := &story{sim: newSim(t)}
	s.settings(func(spec *v1alpha1.BridgePolicySpec) {
		spec.Rollout = &v1alpha1.Rollout{Type: v1alpha1.RolloutBlueGreen, BlueGreen: &v1alpha1.BlueGreen{ReadySeconds: ptr.To[int32](0)}}
	})
	s.calm()
	s.image("localhost/causeway-proxy:2")
	s.until(v1alpha1.StepRetained)
	if s.epoch != 2 {
		t.Errorf("the epoch is %d, want 2\n%s", s.epoch, s.log.String())
	}
}

func TestPausedMeansHandsOff(t *testing.T) {
	s := newStory(t)
	s.image("localhost/causeway-proxy:2")
	s.until(v1alpha1.StepReady)
	s.settings(func(spec *v1alpha1.BridgePolicySpec) { spec.Management = v1alpha1.ManagementPaused })
	p := s.settle(time.Hour)
	if len(p.Actions) != 0 || p.Rollout.UpToDate.Reason != v1alpha1.ReasonPaused || p.Active != v1alpha1.SlotBlue {
		t.Errorf("%d actions, %+v", len(p.Actions), p.Rollout.UpToDate)
	}
}
