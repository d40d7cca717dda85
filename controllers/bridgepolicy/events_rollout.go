package bridgepolicy

import (
	"fmt"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/notify"
	"github.com/causeway-dev/causeway/controllers/internal/plan"
)

// created tells of slots that the plan made.
func created(w plan.World, p plan.Plan) (list []notify.Event) {
	for _, action := range p.Actions {
		if a, ok := action.(plan.ApplySlot); ok && w.Slots[a.Slot.Slot] == nil {
			list = append(list, notify.Event{Reason: v1alpha1.EventSlotCreated, Action: v1alpha1.ActionRollout,
				Note: "Created slot " + string(a.Slot.Slot) + " with revision " + p.Fleet.Revision})
		}
	}
	return list
}

// tellings word the transitions of a rollout, with slot and revision.
var tellings = map[string]struct {
	warning      bool
	action, note string
}{
	v1alpha1.EventCandidateReady:       {false, v1alpha1.ActionRollout, "Candidate %s with revision %s is ready"},
	v1alpha1.EventPromotionPending:     {false, v1alpha1.ActionRollout, "Candidate %s waits for " + v1alpha1.AnnotationPromote + "=%s"},
	v1alpha1.EventPromoted:             {false, v1alpha1.ActionRollout, "Slot %s with revision %s is active now"},
	v1alpha1.EventRolloutAborted:       {false, v1alpha1.ActionRollout, "Candidate %s with revision %s is given up"},
	v1alpha1.EventRolledBack:           {true, v1alpha1.ActionRollout, "Slot %s with revision %s is rolled back"},
	v1alpha1.EventActivationRequested:  {false, v1alpha1.ActionActivation, "Asked for slot %s with revision %s to take over"},
	v1alpha1.EventActivationForced:     {true, v1alpha1.ActionActivation, "Slot %s with revision %s does not let go and is scaled to zero"},
	v1alpha1.EventDrainStarted:         {false, v1alpha1.ActionDrain, "Slot %s with revision %s gets no new clients and finishes its streams"},
	v1alpha1.EventDrainCompleted:       {false, v1alpha1.ActionDrain, "Slot %s with revision %s has finished its streams"},
	v1alpha1.EventDrainDeadlineReached: {true, v1alpha1.ActionDrain, "Slot %s with revision %s has not finished its streams in time"},
	v1alpha1.EventDrainBlocksEviction:  {false, v1alpha1.ActionDrain, "Slot %s with revision %s keeps its pods from eviction while it drains"},
}

// rolloutEvents tell what a rollout came to. The planner notes each transition
// once, whatever the status says.
func rolloutEvents(p plan.Plan) (list []notify.Event) {
	for _, t := range p.Rollout.Told {
		telling, ok := tellings[t.Reason]
		if !ok {
			continue
		}
		note := fmt.Sprintf(telling.note, t.Slot, t.Revision)
		if t.Detail != "" {
			note += ": " + t.Detail
		}
		list = append(list, notify.Event{Warning: telling.warning, Reason: t.Reason, Action: telling.action, Note: note})
	}
	return list
}

// activationEvents tell who got and who lost authority.
func activationEvents(before *v1alpha1.ActivationStatus, p plan.Plan) []notify.Event {
	is := p.Rollout.Activation
	var was v1alpha1.ActivationStatus
	if before != nil {
		was = *before
	}
	switch {
	case is.Slot != "" && (is.Slot != was.Slot || is.Epoch > was.Epoch):
		return []notify.Event{{Reason: v1alpha1.EventActivationAcquired, Action: v1alpha1.ActionActivation,
			Note: fmt.Sprintf("Slot %s has authority with epoch %d", is.Slot, is.Epoch)}}
	case is.Slot == "" && was.Slot != "" && p.Rollout.Step != v1alpha1.StepHandover:
		return []notify.Event{{Warning: true, Reason: v1alpha1.EventActivationLost, Action: v1alpha1.ActionActivation,
			Note: fmt.Sprintf("Slot %s has lost authority and nobody has it", was.Slot)}}
	}
	return nil
}
