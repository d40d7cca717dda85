package accountpool

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/conditions"
	"github.com/causeway-dev/causeway/controllers/internal/notify"
)

// maxSingle is how many accounts one look tells of one by one; more at once are
// one cause, and one event.
const maxSingle = 4

// eventsOf lists what people must know about accounts, from the change between
// two statuses. It is pure. Each event has a topic, so that an account that comes
// and goes is told of once in a while however its message reads.
func eventsOf(before, after *v1alpha1.AccountPool) []notify.Event {
	was := map[string]v1alpha1.AccountCondition{}
	for _, a := range before.Status.Accounts {
		was[a.Name] = a.State
	}
	var lost, login, back []notify.Event
	for _, a := range after.Status.Accounts {
		old := was[a.Name]
		switch {
		case old == a.State:
		case a.State == v1alpha1.AccountConditionReauthRequired:
			login = append(login, accountEvent(a, v1alpha1.EventReauthRequired, true))
		case a.State == v1alpha1.AccountConditionQuotaExhausted,
			a.State == v1alpha1.AccountConditionCoolingDown && old == v1alpha1.AccountConditionUsable:
			lost = append(lost, accountEvent(a, v1alpha1.EventAccountUnusable, false))
		case a.State == v1alpha1.AccountConditionUsable && unusable[old]:
			back = append(back, accountEvent(a, v1alpha1.EventAccountRecovered, false))
		}
	}
	list := bounded(login, "%d accounts need a new credential; status.accounts says which")
	list = append(list, bounded(lost, "%d accounts take no turns; status.accounts says why and until when")...)
	list = append(list, bounded(back, "%d accounts take turns again")...)
	list = append(list, poolEvents(before, after)...)
	return list
}

func accountEvent(a v1alpha1.AccountStatus, reason string, warning bool) notify.Event {
	e := notify.Event{Warning: warning, Reason: reason, Action: v1alpha1.ActionReconcile, Topic: a.Name}
	switch {
	case a.State == v1alpha1.AccountConditionUsable:
		e.Note = fmt.Sprintf("Account %s takes turns again", a.Name)
	case a.Message != "":
		e.Note = fmt.Sprintf("Account %s takes no turns. %s", a.Name, a.Message)
	default:
		e.Note = fmt.Sprintf("Account %s takes no turns: %s", a.Name, a.State)
	}
	return e
}

// bounded makes one event of many.
func bounded(list []notify.Event, many string) []notify.Event {
	if len(list) <= maxSingle {
		return list
	}
	e := list[0]
	e.Topic, e.Note = "many", fmt.Sprintf(many, len(list))
	return []notify.Event{e}
}

// poolEvents tells when the last account goes and when the first one is back,
// and of references that lead nowhere.
func poolEvents(before, after *v1alpha1.AccountPool) []notify.Event {
	var list []notify.Event
	old, is := find(before, v1alpha1.ConditionUsable), find(after, v1alpha1.ConditionUsable)
	const topic = "pool"
	switch {
	case old.Status == metav1.ConditionTrue && is.Status == metav1.ConditionFalse:
		list = append(list, notify.Event{Warning: true, Reason: v1alpha1.EventAccountUnusable, Action: v1alpha1.ActionReconcile,
			Topic: topic, Note: is.Message})
	case old.Status == metav1.ConditionFalse && is.Status == metav1.ConditionTrue:
		list = append(list, notify.Event{Reason: v1alpha1.EventAccountRecovered, Action: v1alpha1.ActionReconcile,
			Topic: topic, Note: is.Message})
	}
	old, is = find(before, v1alpha1.ConditionSecretsResolved), find(after, v1alpha1.ConditionSecretsResolved)
	if is.Status == metav1.ConditionFalse && (old.Message != is.Message || old.Status != is.Status) {
		list = append(list, notify.Event{Warning: true, Reason: v1alpha1.EventRefsNotResolved, Action: v1alpha1.ActionResolve, Note: is.Message})
	}
	return list
}

// find returns the condition, or its zero value.
func find(pool *v1alpha1.AccountPool, kind string) metav1.Condition {
	if c := conditions.Find(pool.Status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

var unusable = map[v1alpha1.AccountCondition]bool{
	v1alpha1.AccountConditionCoolingDown:    true,
	v1alpha1.AccountConditionQuotaExhausted: true,
	v1alpha1.AccountConditionReauthRequired: true,
}
