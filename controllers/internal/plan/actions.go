package plan

import (
	"maps"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
)

// actions lists everything that shall be for the slots; what is so already costs
// no write. The order makes each step safe to be the last: notes before what they
// announce, pods before the route to them, the route away from pods before their end.
func (r *rollout) actions(w World) []Action {
	a, o := r.active, r.other
	r.remind()
	list := r.dropAutoscalers(w)
	list = append(list, r.notes(o)...)
	if a.exists {
		list = append(list, r.mark(a)...)
	}
	list = append(list, r.authorize()...)
	if a.render || a.revision == r.fleet.Revision {
		list = append(list, ApplySlot{r.slot(a), a.version})
	}
	if r.forced {
		if a.replicas > 0 {
			r.tell(v1alpha1.EventActivationForced, a, "")
		}
		list = append(list, r.route(w), ScaleSlot{r.slot(a), 0, a.version})
	} else {
		list = append(append(list, r.scaleActive()...), r.route(w))
	}
	list = append(append(list, r.scaleOther()...), r.preview(w)...)
	if r.fleet.Autoscaled {
		list = append(list, ApplyAutoscaler{r.slot(a)})
	}
	return append(list, r.holds(w)...)
}

func (r *rollout) slot(s *slot) effective.Slot { return effective.Slot{Fleet: r.fleet, Slot: s.name} }

// notes brings marks and template of the other slot up to date. A slot that does
// not exist can only be noted on once it does.
func (r *rollout) notes(o *slot) []Action {
	apply := ApplySlot{r.slot(o), o.version}
	switch {
	case !o.exists && o.render:
		return append([]Action{apply}, r.mark(o)...)
	case !o.exists:
		return nil
	case o.render, o.candidate() && !o.served() && o.revision == r.fleet.Revision:
		return append(r.mark(o), apply)
	default:
		return r.mark(o)
	}
}

func (r *rollout) mark(s *slot) []Action {
	if s.marks == s.noted {
		return nil
	}
	return []Action{MarkSlot{r.slot(s), s.marks, s.version}}
}

// scaleActive sets the size of the active slot unless an autoscaler does. An
// autoscaler rests while there are no replicas at all.
func (r *rollout) scaleActive() []Action {
	a := r.active
	size := r.fleet.Replicas
	if r.fleet.Autoscaled && a.exists {
		if a.replicas > 0 || size == 0 {
			return nil
		}
		size = max(size, r.other.replicas)
	}
	return []Action{ScaleSlot{r.slot(a), size, a.version}}
}

// scaleOther sets the size of a candidate, or none. A slot that drains or is
// retained keeps what it has.
func (r *rollout) scaleOther() []Action {
	o := r.other
	switch {
	case !o.exists && !o.render:
		return nil
	case !o.marks.EmptiedAt.IsZero():
		return []Action{ScaleSlot{r.slot(o), 0, o.version}}
	case o.candidate() && (o.served() || o.handingOver()):
		if size := r.active.replicas; size > o.replicas {
			return []Action{ScaleSlot{r.slot(o), size, o.version}}
		}
	case o.candidate():
		return []Action{ScaleSlot{r.slot(o), r.candidateSize(), o.version}}
	}
	return nil
}

// route is where clients go. While a slot takes over, and while the active one
// cannot serve, both are in it: one without authority holds or relays turns.
func (r *rollout) route(w World) Action {
	a, o := r.active, r.other
	rescue := a.ready() == 0 && o.ready() > 0 && (o.handingOver() || !o.marks.DrainingAt.IsZero())
	action := SwitchRoute{Active: r.slot(a), Wide: r.forced || r.switching() || rescue}
	if a.served() {
		action.PromotedAt = formatTime(a.marks.PromotedAt)
	}
	if w.Service != nil {
		action.Seen = w.Service.ResourceVersion
	}
	return action
}

func (r *rollout) preview(w World) []Action {
	shown := r.settings.ExposePreview == v1alpha1.SwitchEnabled
	switch o := r.other; {
	case shown && o.candidate():
		return []Action{ShowPreview{r.fleet, o.name}}
	case shown || w.Preview != nil:
		return []Action{ShowPreview{Fleet: r.fleet}}
	default:
		return nil
	}
}

// dropAutoscalers ends those of slots that shall keep their size. It comes first:
// an autoscaler takes a slot that loses its traffic for one that needs fewer pods.
func (r *rollout) dropAutoscalers(w World) []Action {
	var list []Action
	for _, s := range []*slot{r.other, r.active} {
		if h := w.Autoscalers[s.name]; h != nil && (s == r.other || !r.fleet.Autoscaled) {
			list = append(list, DropAutoscaler{r.slot(s), h.UID})
		}
	}
	return list
}

// heldBy are the annotations by which pods are left alone.
var heldBy = map[string]string{
	"cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
	"karpenter.sh/do-not-disrupt":                    "true",
}

// HeldBy returns them.
func HeldBy() map[string]string { return maps.Clone(heldBy) }

// holds guards the pods of a slot that drains, and frees those of all others.
func (r *rollout) holds(w World) []Action {
	var list []Action
	held := r.held()
	for _, s := range []*slot{r.other, r.active} {
		if !s.exists && !s.render {
			continue
		}
		hold := held && s == r.other
		list = append(list, GuardSlot{r.slot(s), hold})
		var own map[string]string // what the user says about all pods is left as it is
		if d := w.Slots[s.name]; d != nil {
			own = d.Spec.Template.Annotations
		}
		var pods []PodRef
		for _, p := range s.pods {
			if heldNow(p) != hold && !userSays(own) {
				pods = append(pods, podRef(p))
			}
		}
		if len(pods) > 0 {
			list = append(list, HoldPods{pods, hold})
		}
	}
	return list
}

func userSays(template map[string]string) bool {
	for key := range heldBy {
		if _, ok := template[key]; ok {
			return true
		}
	}
	return false
}

func heldNow(p reports.Report) bool {
	for key, value := range heldBy {
		if p.Pod.Annotations[key] != value {
			return false
		}
	}
	return true
}

func podRef(p reports.Report) PodRef {
	ref := PodRef{UID: p.Pod.UID}
	ref.Namespace, ref.Name = p.Pod.Namespace, p.Pod.Name
	return ref
}
