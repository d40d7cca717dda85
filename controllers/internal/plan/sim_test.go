package plan

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	apieffective "github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
)

// The tests of this package bite: each of these single breaks of a rule is caught,
// by the test that is named among others.
//
//	file         break                                                       caught by
//	rollout.go   the Service is no witness of the last promotion             T51AStaleOperatorChangesNothing
//	lease.go     a slot is forced without a look at the Lease                B90ASlotIsForcedOnlyWhileItHolds
//	lease.go     a Lease made anew asks for the candidate at once            T48ALeaseDeletedDuringAHandover...
//	lease.go     a Lease made anew begins with epoch 0                       stories: lease-deleted
//	lease.go     only proxies remember the epoch                             simulation: the epoch falls
//	handover.go  who is asked is promoted before it has authority            stories: never-serving
//	handover.go  a live holder is taken for nobody                           stories: forced
//	handover.go  promotions have the time of a clock and no order            PromotionsAreOrdered...
//	drain.go     a slot that may still have authority is idle                stories: never-serving
//	drain.go     the last ready pods are given up                            stories: falls-down
//	drain.go     a slot is idle whatever its pods report                     simulation: a pod ended with sessions
var (
	simSeed  = flag.Uint64("sim.seed", 0, "run this one seed of the simulation and print its log")
	simSeeds = flag.Int("sim.seeds", 120, "how many seeds of the simulation to run")
)

func effectiveFleet(w World) effective.Fleet { return effective.NewFleet(w.Policy, w.ProxyImage) }

func effectiveSettings(w World) apieffective.Settings { return apieffective.SettingsOf(w.Policy) }

func (s *sim) otherOf(slot v1alpha1.SlotName) map[string]string {
	for name, d := range s.w.Slots {
		if name != slot {
			return d.Annotations
		}
	}
	return nil
}

func (s *sim) broken(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s: %s\n%s", s.now.Format(time.TimeOnly), fmt.Sprintf(format, args...), s.log.String())
}

// check holds the invariants against what is.
func (s *sim) check() {
	s.t.Helper()
	if n := s.routed(); n > 0 {
		s.served = true
	} else if s.served {
		s.broken("the route is empty")
	}
	if l := readLease(s.w.Lease); l.exists {
		if l.epoch < s.epoch {
			s.broken("the epoch falls from %d to %d", s.epoch, l.epoch)
		}
		s.epoch = l.epoch
	}
	slots := map[v1alpha1.SlotName]bool{}
	for _, p := range s.proxies {
		if p.captain && !p.frozen && !s.cut && !p.orphan {
			slots[p.slot] = true
		}
	}
	if len(slots) > 1 {
		s.broken("two slots have authority")
	}
}

// chaos is what a seed does to a bridge.
type chaos struct {
	*sim
	rnd     *rand.Rand
	settled *v1alpha1.BlueGreen
}

// newChaos makes a bridge with settings of its own.
func newChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	c := &chaos{sim: newSim(t), rnd: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // a simulation
	number := func(list ...int32) *int32 { return &list[c.rnd.IntN(len(list))] }
	c.settings(func(spec *v1alpha1.BridgePolicySpec) {
		c.settled = &v1alpha1.BlueGreen{
			ReadySeconds: number(0, 15), OverlapSeconds: number(0, 15), RetainSeconds: number(0, 60, 900),
			ProgressDeadlineSeconds: number(60, 600),
		}
		spec.Rollout = &v1alpha1.Rollout{Type: v1alpha1.RolloutBlueGreen, BlueGreen: c.settled.DeepCopy()}
		spec.Activation = &v1alpha1.Activation{ForceAfterSeconds: number(10, 120)}
		if seed%3 == 0 {
			spec.Replicas, spec.Autoscaling = nil, &v1alpha1.Autoscaling{MaxReplicas: 5}
		}
	})
	if seed%5 == 0 {
		c.image(imageOld)
	}
	return c
}

// stale is a world as a cache may show it: each kind of its own age.
func (c *chaos) stale() World {
	now := c.world()
	c.past = append(c.past, now)
	if len(c.past) > 8 {
		c.past = c.past[1:]
	}
	if c.rnd.IntN(3) > 0 {
		return now
	}
	old := func() World { return c.past[len(c.past)-1-c.rnd.IntN(len(c.past))] }
	w := now
	w.Slots, w.Service, w.Lease, w.Reports = old().Slots, old().Service, old().Lease, old().Reports
	return w
}

func (c *chaos) event() {
	switch n := c.rnd.IntN(20); {
	case n < 6:
		limit := -1
		if c.rnd.IntN(3) == 0 {
			limit = c.rnd.IntN(12) // it dies between two actions
		}
		w := c.stale()
		c.note("%s  operator, limit %d", c.now.Format(time.TimeOnly), limit)
		c.reconcile(w, limit)
	case n < 9:
		c.kubelet()
	case n < 12 && len(c.proxies) > 0:
		c.look(c.proxies[c.rnd.IntN(len(c.proxies))])
	case n < 15 && len(c.proxies) > 0:
		c.report(c.proxies[c.rnd.IntN(len(c.proxies))])
	case n < 17:
		c.traffic()
	default:
		c.now = c.now.Add(time.Duration(c.rnd.IntN(9)) * time.Second)
		if c.rnd.IntN(20) == 0 {
			c.now = c.now.Add(time.Duration(c.rnd.IntN(600)) * time.Second)
		}
		c.renew()
	}
}

// renew lets captains look in time, and first after they could not: who has
// authority may lose it only by what it can see.
func (s *sim) renew() {
	for _, p := range s.proxies {
		if p.captain {
			s.look(p)
		}
	}
}

// traffic lets turns begin where authority is, and end anywhere.
func (c *chaos) traffic() {
	for _, p := range c.proxies {
		switch serving := p.captain || p.image == imageOld; {
		case serving && p.sessions < 3 && c.rnd.IntN(2) == 0:
			p.sessions++
		case p.sessions > 0 && !p.endless && c.rnd.IntN(4) == 0:
			p.sessions--
		}
	}
}

// people change their minds, and machines fail.
func (c *chaos) disturb() {
	active := c.w.Policy.Spec.Image.Reference
	pick := func(list ...string) string { return list[c.rnd.IntN(len(list))] }
	revision := func() string {
		var list []string
		for _, d := range c.w.Slots {
			list = append(list, d.Annotations[v1alpha1.AnnotationRevision])
		}
		return pick(append(list, "nonsense")...)
	}
	switch c.rnd.IntN(15) {
	case 14: // T57: turns begin to fail, or cease to
		for _, p := range c.proxies {
			p.turns = []*v1alpha1.ReplicaTurns{nil, {Ended: 40}, {Ended: 40, Failed: 40}, {Ended: 40, Failed: 40, Internal: 40}}[c.rnd.IntN(4)]
		}
	case 12:
		for _, p := range c.proxies {
			p.endless = p.endless || c.rnd.IntN(3) == 0
		}
	case 13: // an autoscaler does its work
		for slot := range c.w.Autoscalers {
			c.w.Slots[slot].Spec.Replicas = ptr.To(1 + c.rnd.Int32N(4))
			c.w.Slots[slot].ResourceVersion = c.next()
		}
	case 0, 1, 2:
		reference := pick("localhost/a", "localhost/b", "localhost/c", imageBroken, imageMute, imageDeaf)
		c.note("%s  image %s -> %s is %s", c.now.Format(time.TimeOnly), active, reference, c.image(reference))
	case 3:
		c.settings(func(spec *v1alpha1.BridgePolicySpec) {
			spec.Rollout = &v1alpha1.Rollout{Type: v1alpha1.RolloutBlueGreen, BlueGreen: c.settled.DeepCopy()}
			spec.Rollout.BlueGreen.Promotion = v1alpha1.Promotion(pick("Manual", "Automatic"))
			if c.rnd.IntN(3) == 0 {
				c.rolled, spec.Rollout = true, &v1alpha1.Rollout{Type: v1alpha1.RolloutRollingUpdate}
			}
		})
	case 4:
		c.wish(v1alpha1.AnnotationPromote, revision())
	case 5:
		c.wish(v1alpha1.AnnotationRollbackTo, revision())
	case 6:
		c.wish(v1alpha1.AnnotationAbort, revision())
	case 7:
		c.wish(v1alpha1.AnnotationCutDrain, revision())
	case 8:
		if c.w.Lease != nil && c.epoch <= newRollout(c.world(), effectiveFleet(c.w), c.now).highestEpoch() {
			c.note("%s  the Lease is deleted", c.now.Format(time.TimeOnly))
			c.w.Lease, c.past = nil, nil // what is deleted is known to all caches
			for _, p := range c.proxies {
				p.orphan = true
			}
		}
	case 9:
		c.cut = !c.cut
		c.renew()
		c.note("%s  API server cut: %v", c.now.Format(time.TimeOnly), c.cut)
	case 10:
		if len(c.proxies) > 0 {
			p := c.proxies[c.rnd.IntN(len(c.proxies))]
			p.frozen = !p.frozen
			c.renew()
			c.note("%s  %s frozen: %v", c.now.Format(time.TimeOnly), p.pod.Name, p.frozen)
		}
	case 11:
		for _, p := range c.proxies {
			p.frozen = false
		}
		c.cut = false
		c.renew()
	}
}

// rest ends all disturbance and waits until nothing changes any more.
func (c *chaos) rest() Plan {
	c.t.Helper()
	c.note("%s  all faults end", c.now.Format(time.TimeOnly))
	c.cut = false
	c.wish(v1alpha1.AnnotationPromote, effectiveFleet(c.w).Revision)
	for _, p := range c.proxies {
		p.frozen, p.turns = false, nil
	}
	c.renew()
	quiet := 0
	for range 6000 {
		p, changed := c.round()
		if quiet++; changed {
			quiet = 0
		}
		switch {
		case quiet > 3 && p.Rollout.Step == v1alpha1.StepIdle, quiet > 200:
			return p
		case quiet > 0 && p.Wait > 0:
			c.now = c.now.Add(min(p.Wait, 5*time.Minute))
		default:
			c.now = c.now.Add(5 * time.Second)
		}
	}
	c.broken("it never comes to rest")
	return Plan{}
}

// round lets everybody do what is due once.
func (s *sim) round() (Plan, bool) {
	s.t.Helper()
	changed := s.kubelet()
	for _, p := range append([]*proxy(nil), s.proxies...) {
		changed = s.look(p) || changed
		changed = s.report(p) || changed
		if p.sessions > 0 && !p.captain && !p.endless {
			p.sessions--
			changed = true
		}
		s.check()
	}
	s.note("%s", s.now.Format(time.TimeOnly))
	p, wrote := s.reconcile(s.world(), -1)
	s.check()
	return p, changed || wrote
}

func TestEveryRunEndsWellWhateverHappens(t *testing.T) {
	seeds := *simSeeds
	if testing.Short() {
		seeds = min(seeds, 30)
	}
	told := map[string]int{}
	for seed := range uint64(seeds) { //nolint:gosec // a small number
		if *simSeed != 0 && seed != *simSeed {
			continue
		}
		c := newChaos(t, seed)
		c.note("seed %d", seed)
		for range 3 {
			for range 200 {
				c.event()
				c.check()
				if c.rnd.IntN(40) == 0 {
					c.disturb()
				}
			}
			c.ends(c.rest())
		}
		for _, transition := range c.told {
			told[transition.Reason]++
		}
		if *simSeed != 0 {
			t.Log(c.log.String())
		}
	}
	for _, reason := range []string{v1alpha1.EventCandidateReady, v1alpha1.EventPromotionPending, v1alpha1.EventPromoted,
		v1alpha1.EventRolloutAborted, v1alpha1.EventActivationForced, v1alpha1.EventDrainCompleted, v1alpha1.EventDrainDeadlineReached} {
		if told[reason] == 0 && *simSeed == 0 {
			t.Errorf("%s never happened: the simulation proves nothing about it; there were %v", reason, told)
		}
	}
	t.Logf("what happened: %v", told)
}

// mayHold says whether a ready pod of the slot would take the Lease.
func (s *sim) mayHold(slot v1alpha1.SlotName) bool {
	return slices.ContainsFunc(s.of(slot), func(p *proxy) bool {
		return p.ready() && p.image != imageOld && p.image != imageMute
	})
}

// ends says whether a run came to a good end.
func (c *chaos) ends(p Plan) {
	c.t.Helper()
	if !c.served {
		return // the first revision of all never became ready, as its Deployment says
	}
	l := readLease(c.w.Lease)
	d := c.w.Slots[p.Active]
	revision := d.Annotations[v1alpha1.AnnotationRevision]
	switch {
	case p.Rollout.Step != v1alpha1.StepIdle:
		c.broken("step %s does not end", p.Rollout.Step)
	case revision != p.Fleet.Revision && p.Rollout.Failed != p.Fleet.Revision:
		c.broken("revision %s is active and %s is wanted; %+v", revision, p.Fleet.Revision, p.Rollout)
	case revision != p.Fleet.Revision && p.Rollout.UpToDate.Reason != v1alpha1.ReasonRolloutFailed:
		c.broken("stalled for no stated reason: %+v", p.Rollout)
	case c.w.Service.Spec.Selector[v1alpha1.LabelSlot] != string(p.Active):
		c.broken("the route leads to %v and %s is active", c.w.Service.Spec.Selector, p.Active)
	case effectiveSettings(c.w).RolloutType == v1alpha1.RolloutRollingUpdate:
	case l.asked != p.Active:
		c.broken("%s is asked and %s is active", l.asked, p.Active)
	case c.mayHold(p.Active) && l.holder.Slot != string(p.Active):
		c.broken("%q holds and %s is active", l.holder.Slot, p.Active)
	}
}
