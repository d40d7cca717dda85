package plan

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	apieffective "github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/desired"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
)

// rollout is what is known about the two slots of a bridge, and what is decided
// about them. Its methods change nothing but the rollout itself.
type rollout struct {
	fleet    effective.Fleet
	settings apieffective.Settings
	wanted   desired.Documents
	wishes   map[string]string // annotations of the policy
	now      time.Time

	slots         map[v1alpha1.SlotName]*slot
	active, other *slot
	lease         lease
	routed        v1alpha1.SlotName // that the Service selects alone; empty = none or both

	// What was decided.
	forced  bool // the active slot does not let go
	waiting bool // a change waits for the other slot to drain
	told    []Transition
	// again are the times at which something changes by time alone.
	again []time.Time
}

// slot is one of the two fleets.
type slot struct {
	name     v1alpha1.SlotName
	exists   bool
	revision string
	replicas int32
	version  string // of the Deployment that was observed
	image    string
	pods     []reports.Report // that are not on their way out

	noted, marks Marks // as they are, and as they shall be
	render       bool  // the template is to be written anew
}

// Transition is one thing that a rollout came to, in a word of events.
type Transition struct {
	Reason   string
	Slot     v1alpha1.SlotName
	Revision string
	Detail   string
}

func newRollout(w World, f effective.Fleet, now time.Time) *rollout {
	r := &rollout{
		fleet: f, settings: apieffective.SettingsOf(w.Policy), wishes: w.Policy.Annotations, now: now.UTC().Truncate(time.Second),
		slots: map[v1alpha1.SlotName]*slot{}, lease: readLease(w.Lease),
	}
	for _, name := range []v1alpha1.SlotName{v1alpha1.SlotBlue, v1alpha1.SlotGreen} {
		r.slots[name] = readSlot(name, w.Slots[name], w.Reports)
	}
	if s := w.Service; s != nil {
		r.routed = v1alpha1.SlotName(s.Spec.Selector[v1alpha1.LabelSlot])
		r.witness(s)
	}
	r.choose()
	return r
}

// witness lets the Service say which promotion was the last: a Deployment that was
// made anew, or that is not seen as it is now, does not undo one.
func (r *rollout) witness(s *corev1.Service) {
	to, at := r.slots[v1alpha1.SlotName(s.Annotations[v1alpha1.AnnotationActiveSlot])], parseTime(s.Annotations[v1alpha1.AnnotationPromotedAt])
	if to == nil {
		return
	}
	for _, s := range r.slots {
		if !at.After(s.marks.PromotedAt) {
			return
		}
	}
	to.marks.PromotedAt = at
}

func readSlot(name v1alpha1.SlotName, d *appsv1.Deployment, list []reports.Report) *slot {
	s := &slot{name: name}
	for _, p := range list {
		if p.Slot() == name {
			s.pods = append(s.pods, p)
		}
	}
	if d == nil {
		return s
	}
	s.exists, s.version, s.replicas = true, d.ResourceVersion, 1
	s.revision = d.Annotations[v1alpha1.AnnotationRevision]
	if d.Spec.Replicas != nil {
		s.replicas = *d.Spec.Replicas
	}
	if c := d.Spec.Template.Spec.Containers; len(c) > 0 {
		s.image = c[0].Image
	}
	s.noted = readMarks(d.Annotations)
	s.marks = s.noted
	return s
}

// choose tells the active slot: the one that was promoted last. Before the first
// promotion it is the one that serves already, else blue.
func (r *rollout) choose() {
	blue, green := r.slots[v1alpha1.SlotBlue], r.slots[v1alpha1.SlotGreen]
	active := blue
	holder := r.slots[v1alpha1.SlotName(r.lease.holder.Slot)]
	switch {
	case !blue.marks.PromotedAt.Equal(green.marks.PromotedAt):
		if green.marks.PromotedAt.After(blue.marks.PromotedAt) {
			active = green
		}
	case r.slots[r.routed] != nil && r.slots[r.routed].exists:
		active = r.slots[r.routed]
	case holder != nil && holder.exists:
		active = holder
	}
	r.active, r.other = active, blue
	if active == blue {
		r.other = green
	}
}

// live says whether the slot has pods or shall have some.
func (s *slot) live() bool { return s.exists && s.replicas > 0 || len(s.pods) > 0 }

// served says whether the slot had authority with its present pods.
func (s *slot) served() bool { return !s.marks.PromotedAt.IsZero() }

// candidate says whether the slot is on its way to authority.
func (s *slot) candidate() bool { return !s.marks.StartedAt.IsZero() || s.handingOver() }

func (s *slot) handingOver() bool { return !s.marks.HandoverAt.IsZero() }

// failed says whether the slot's own revision is not to be tried again.
func (s *slot) failed() bool { return s.revision != "" && s.marks.Failed == s.revision }

// ready counts the pods that are ready.
func (s *slot) ready() (n int32) {
	for _, p := range s.pods {
		if p.Ready() {
			n++
		}
	}
	return n
}

// blueGreen says whether slots take turns at all.
func (r *rollout) blueGreen() bool { return r.settings.RolloutType == v1alpha1.RolloutBlueGreen }

// passed says whether d has gone by since a time, and asks to be asked again
// when it has not.
func (r *rollout) passed(since time.Time, d time.Duration) bool {
	at := since.Add(d)
	if r.now.Before(at) {
		r.again = append(r.again, at)
		return false
	}
	return true
}

func (r *rollout) tell(reason string, s *slot, detail string) {
	r.told = append(r.told, Transition{Reason: reason, Slot: s.name, Revision: s.revision, Detail: detail})
}

// target is the revision that shall be active.
func (r *rollout) target() string {
	a, o := r.active, r.other
	if a.failed() && o.live() && o.served() && o.marks.EmptiedAt.IsZero() && !o.failed() {
		return o.revision // back to where we came from
	}
	want := r.fleet.Revision
	if a.marks.Failed == want || o.marks.Failed == want {
		return a.revision
	}
	return want
}

// inPlace says whether a change is made in the active slot itself: nobody would
// notice, or nobody wants it otherwise. A slot that was scaled to zero because it did
// not let go comes back as it was: what it was to give way to may have failed.
func (r *rollout) inPlace() bool {
	a := r.active
	return !r.blueGreen() || !a.exists || !a.served() || !a.live() && !r.other.live()
}
