package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/golden"
)

// story is a simulation that is told to people.
type story struct {
	*sim
	step v1alpha1.RolloutStep
}

func newStory(t *testing.T) *story {
	t.Helper()
	s := &story{sim: newSim(t)}
	s.settle(time.Minute)
	s.log.Reset()
	return s
}

// tell says what happens next.
func (s *story) tell(format string, args ...any) { s.note("* "+format, args...) }

// settle lets d go by and notes what changes.
func (s *story) settle(d time.Duration) Plan {
	s.t.Helper()
	for end := s.now.Add(d); ; {
		p := s.calm()
		if !s.now.Before(end) {
			return p
		}
		s.now = s.now.Add(min(s.pause(p), end.Sub(s.now)))
	}
}

// calm lets everybody act until nothing changes without time.
func (s *story) calm() (p Plan) {
	s.t.Helper()
	for range 20 {
		var changed bool
		if p, changed = s.once(); !changed {
			break
		}
	}
	return p
}

// pause is how long nothing happens: while slots take turns, every second counts.
func (s *story) pause(p Plan) time.Duration {
	switch p.Rollout.Step {
	case v1alpha1.StepIdle, v1alpha1.StepGate, v1alpha1.StepDraining, v1alpha1.StepRetained, v1alpha1.StepPreparing:
		if p.Wait > 0 {
			return min(p.Wait, 5*time.Minute)
		}
		return 5 * time.Minute
	default:
		return time.Second
	}
}

// until lets time go by until the rollout is in a step.
func (s *story) until(step v1alpha1.RolloutStep) Plan {
	s.t.Helper()
	for range 4000 {
		p := s.calm()
		if p.Rollout.Step == step {
			return p
		}
		s.now = s.now.Add(s.pause(p))
	}
	s.broken("never in step %s", step)
	return Plan{}
}

// once is a round whose log holds nothing but changes.
func (s *story) once() (Plan, bool) {
	s.t.Helper()
	text := s.log.String()
	s.log.Reset()
	p, changed := s.round()
	now := ""
	for _, line := range strings.Split(s.log.String(), "\n") {
		if strings.HasPrefix(line, " ") {
			now += line + "\n"
		}
	}
	if now != "" || p.Rollout.Step != s.step {
		text += fmt.Sprintf("%s  %s\n%s", s.now.Format(time.TimeOnly), p.Rollout.Step, now)
	}
	s.step = p.Rollout.Step
	s.log.Reset()
	s.log.WriteString(text)
	return p, changed
}

// sessions gives each pod of a slot n streams that do not end by themselves.
func (s *story) streams(slot v1alpha1.SlotName, n int32) {
	for _, p := range s.of(slot) {
		p.sessions, p.endless = n, n > 0
	}
}

// turns says how the turns of each pod of a slot fare, from now on.
func (s *story) turns(slot v1alpha1.SlotName, ended, failed, internal int32) {
	for _, p := range s.of(slot) {
		p.turns = &v1alpha1.ReplicaTurns{Ended: ended, Failed: failed, Internal: internal}
	}
}

// draining is a story whose blue slot has given way to green a minute ago, and has
// streams to finish.
func (s *story) draining() {
	s.streams(v1alpha1.SlotBlue, 2)
	s.image("localhost/causeway-proxy:2")
	s.until(v1alpha1.StepDraining)
	s.settle(time.Minute)
	s.log.Reset()
}

// stories are rollouts as people see them. Their logs are golden: read them.
var stories = map[string]func(s *story){
	// T34, B82, B88: every step in order, the epoch rises by one, nothing is cut.
	"upgrade": func(s *story) {
		s.streams(v1alpha1.SlotBlue, 2)
		s.tell("the image changes while 4 streams go on")
		s.image("localhost/causeway-proxy:2")
		s.until(v1alpha1.StepDraining)
		s.settle(time.Minute)
		s.tell("the streams end")
		s.streams(v1alpha1.SlotBlue, 0)
		s.until(v1alpha1.StepRetained)
		s.until(v1alpha1.StepIdle)
		s.settle(5 * time.Second)
		s.tell("epoch %d, active %s", s.epoch, s.reconciled().Active)
	},
	"gate": func(s *story) {
		s.settings(func(spec *v1alpha1.BridgePolicySpec) {
			spec.Rollout = &v1alpha1.Rollout{Type: v1alpha1.RolloutBlueGreen, BlueGreen: &v1alpha1.BlueGreen{Promotion: v1alpha1.PromotionManual}}
			spec.Service = &v1alpha1.Service{ExposePreview: v1alpha1.SwitchEnabled}
		})
		s.tell("the image changes; promotion is Manual")
		revision := s.image("localhost/causeway-proxy:2")
		s.until(v1alpha1.StepGate)
		p := s.settle(2 * time.Hour)
		s.tell("two hours later: UpToDate %s", p.Rollout.UpToDate.Reason)
		s.tell("another revision is promoted, which means nothing")
		s.wish(v1alpha1.AnnotationPromote, "nonsense")
		s.settle(time.Minute)
		s.tell("the right one is promoted")
		s.wish(v1alpha1.AnnotationPromote, revision)
		s.until(v1alpha1.StepSwitching)
	},
	// T37: traffic never leaves blue, and nothing is tried in a loop.
	"never-ready": func(s *story) {
		s.tell("the image changes to one that never becomes ready")
		s.image(imageBroken)
		s.settle(11 * time.Minute)
		p := s.settle(6 * time.Hour)
		s.tell("6 hours later: UpToDate %s: %s", p.Rollout.UpToDate.Reason, p.Rollout.UpToDate.Message)
		s.tell("a good image comes")
		s.image("localhost/causeway-proxy:3")
		s.until(v1alpha1.StepSwitching)
	},
	// T37: a candidate that is ready and does not take over.
	"never-serving": func(s *story) {
		s.tell("the image changes to one that does not take the Lease")
		s.image(imageMute)
		s.until(v1alpha1.StepHandover)
		s.settle(time.Minute)
		p := s.settle(20 * time.Minute)
		s.tell("UpToDate %s, holder %s, epoch %d", p.Rollout.UpToDate.Reason, p.Rollout.Activation.Slot, p.Rollout.Activation.Epoch)
	},
	// The captain of the old slot lives and does not let go.
	"forced": func(s *story) {
		s.image(imageDeaf)
		s.until(v1alpha1.StepRetained)
		s.until(v1alpha1.StepIdle)
		s.log.Reset()
		s.streams(v1alpha1.SlotGreen, 1)
		s.tell("the image changes; the captain of green does not let go")
		s.image("localhost/causeway-proxy:3")
		s.until(v1alpha1.StepHandover)
		s.settle(3 * time.Minute)
	},
	// T55: back within seconds, and not again when the wish is old.
	"T55-rollback": func(s *story) {
		old := s.reconciled().Fleet.Revision
		s.image("localhost/causeway-proxy:2")
		s.until(v1alpha1.StepRetained)
		s.settle(5 * time.Minute)
		s.log.Reset()
		s.tell("rollback-to names the retained revision")
		s.wish(v1alpha1.AnnotationRollbackTo, old)
		s.until(v1alpha1.StepSwitching)
		p := s.settle(time.Hour)
		s.tell("an hour later: active %s, UpToDate %s: %s", p.Active, p.Rollout.UpToDate.Reason, p.Rollout.UpToDate.Message)
		s.tell("a third image; the wish is still there")
		s.image("localhost/causeway-proxy:3")
		s.until(v1alpha1.StepRetained)
		s.settle(5 * time.Minute)
	},
	// T57: the revision that took over fails turns, while those of the one before go well.
	"T57-worse": func(s *story) {
		s.draining()
		s.tell("most turns of green fail; those that blue finishes do not")
		s.turns(v1alpha1.SlotBlue, 3, 0, 0)
		s.turns(v1alpha1.SlotGreen, 30, 25, 0)
		s.until(v1alpha1.StepSwitching)
		s.turns(v1alpha1.SlotGreen, 0, 0, 0)
		s.turns(v1alpha1.SlotBlue, 30, 29, 0)
		s.tell("blue has it back, and now the upstream fails")
		p := s.settle(time.Hour)
		s.tell("an hour later: active %s, UpToDate %s: %s", p.Active, p.Rollout.UpToDate.Reason, p.Rollout.UpToDate.Message)
	},
	// T57: the upstream fails the turns of both.
	"T57-upstream-down": func(s *story) {
		s.draining()
		s.tell("most turns of both slots fail")
		s.turns(v1alpha1.SlotBlue, 5, 4, 0)
		s.turns(v1alpha1.SlotGreen, 30, 25, 0)
		p := s.settle(10 * time.Minute)
		s.tell("ten minutes later: active %s, UpToDate %v", p.Active, p.Rollout.UpToDate.OK)
		s.streams(v1alpha1.SlotBlue, 0)
		s.turns(v1alpha1.SlotBlue, 0, 0, 0)
		s.tell("blue has nothing left to compare with")
		s.until(v1alpha1.StepIdle)
		s.tell("active %s", s.reconciled().Active)
	},
	"revert": func(s *story) {
		s.image("localhost/causeway-proxy:2")
		s.until(v1alpha1.StepRetained)
		s.log.Reset()
		s.tell("the spec goes back to the image before")
		s.image("localhost/causeway-proxy:1")
		s.until(v1alpha1.StepSwitching)
		s.settle(time.Minute)
	},
	"abort": func(s *story) {
		s.tell("the image changes, and is aborted before it is ready")
		s.wish(v1alpha1.AnnotationAbort, s.image(imageBroken))
		s.settle(time.Minute)
	},
	// A change waits for the streams of the slot that it needs.
	"cut-drain": func(s *story) {
		old := s.reconciled().Fleet.Revision
		s.streams(v1alpha1.SlotBlue, 1)
		s.image("localhost/causeway-proxy:2")
		s.until(v1alpha1.StepDraining)
		s.log.Reset()
		s.tell("a hotfix comes while blue drains")
		s.image("localhost/causeway-proxy:3")
		p := s.settle(time.Minute)
		s.tell("it waits (%v): %s", p.Rollout.Waiting, p.Rollout.UpToDate.Message)
		s.wish(v1alpha1.AnnotationCutDrain, old)
		s.tell("cut-drain")
		s.until(v1alpha1.StepSwitching)
	},
	// T53: pods are held while their streams go on, and no longer than the deadline.
	"T53-drain-deadline": func(s *story) {
		s.settings(func(spec *v1alpha1.BridgePolicySpec) {
			spec.Rollout = &v1alpha1.Rollout{Type: v1alpha1.RolloutBlueGreen, BlueGreen: &v1alpha1.BlueGreen{DrainDeadlineSeconds: ptr.To[int32](7200)}}
		})
		s.streams(v1alpha1.SlotBlue, 1)
		s.image("localhost/causeway-proxy:2")
		s.until(v1alpha1.StepSwitching)
		s.log.Reset()
		s.tell("green took over; the streams of blue do not end")
		s.until(v1alpha1.StepRetained)
		s.until(v1alpha1.StepIdle)
		s.settle(time.Minute)
	},
	// T48.
	"lease-deleted": func(s *story) {
		s.image("localhost/causeway-proxy:2")
		s.until(v1alpha1.StepRetained)
		s.log.Reset()
		s.tell("the Lease is deleted; its epoch was %d", s.epoch)
		s.w.Lease = nil
		s.settle(time.Minute)
		s.tell("epoch %d, holder %s", s.epoch, readLease(s.w.Lease).holder.Slot)
		s.tell("somebody asks for the other slot by hand")
		s.w.Lease.Annotations[v1alpha1.AnnotationNextHolder] = "blue"
		s.w.Lease.ResourceVersion = s.next()
		s.settle(time.Minute)
		s.tell("epoch %d, holder %s", s.epoch, readLease(s.w.Lease).holder.Slot)
	},
	// T39: the captain of blue dies in the middle of the hand-over.
	"captain-dies": func(s *story) {
		s.image("localhost/causeway-proxy:2")
		s.until(v1alpha1.StepReady)
		s.log.Reset()
		for _, p := range s.of(v1alpha1.SlotBlue) {
			p.frozen = true
		}
		s.tell("all of blue freezes")
		s.until(v1alpha1.StepSwitching)
	},
	// A release before the Lease: its pods hold nothing and let nothing go.
	"from-before-the-lease": func(s *story) {
		s.sim = newSim(s.t)
		s.image(imageOld)
		s.settle(time.Minute)
		for _, d := range s.w.Slots {
			for key := range (Marks{}).Annotations() {
				delete(d.Annotations, key)
			}
		}
		s.w.Lease, s.w.Service.Annotations = nil, nil
		s.log.Reset()
		s.tell("an operator comes that knows of slots, with a newer image")
		s.image("localhost/causeway-proxy:2")
		s.until(v1alpha1.StepRetained)
	},
	// The one does not let go, and the other does not take.
	"forced-in-vain": func(s *story) {
		for _, p := range s.proxies {
			p.image = imageDeaf
		}
		s.tell("the captain of blue does not let go; the image changes to one that does not take the Lease")
		s.image(imageMute)
		s.until(v1alpha1.StepHandover)
		p := s.settle(20 * time.Minute)
		s.tell("active %s, UpToDate %s, holder %s", p.Active, p.Rollout.UpToDate.Reason, p.Rollout.Activation.Slot)
	},
	// What took over falls down before all clients are led to it.
	"falls-down": func(s *story) {
		s.image("localhost/causeway-proxy:2")
		s.until(v1alpha1.StepSwitching)
		s.log.Reset()
		s.tell("all pods of green become unready, and stay so")
		for _, p := range s.of(v1alpha1.SlotGreen) {
			p.image, p.frozen, p.pod.Status.Conditions = imageBroken, true, nil
		}
		s.settle(30 * time.Second)
		s.tell("the route still leads to %d ready pods", s.routed())
		p := s.settle(20 * time.Minute)
		s.tell("active %s, UpToDate %s: %s", p.Active, p.Rollout.UpToDate.Reason, p.Rollout.UpToDate.Message)
	},
	"autoscaled": func(s *story) {
		s.settings(func(spec *v1alpha1.BridgePolicySpec) {
			spec.Replicas, spec.Autoscaling = nil, &v1alpha1.Autoscaling{MaxReplicas: 9}
		})
		s.settle(time.Minute)
		s.tell("the autoscaler wants 7, and the image changes")
		s.w.Slots[v1alpha1.SlotBlue].Spec.Replicas = ptr.To[int32](7)
		s.w.Slots[v1alpha1.SlotBlue].ResourceVersion = s.next()
		s.image("localhost/causeway-proxy:2")
		s.until(v1alpha1.StepRetained)
		s.tell("green has %d pods", len(s.of(v1alpha1.SlotGreen)))
	},
}

// reconciled is the plan for what is now.
func (s *story) reconciled() Plan { return Next(s.world(), s.now) }

func TestStoriesAreGolden(t *testing.T) {
	for name, tell := range stories {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			tell(s)
			golden.Compare(t, "story-"+name+".golden.txt", s.log.String())
		})
	}
}
