// Package conditions builds the condition lists of statuses. It is pure: the
// time of a transition is the caller's.
package conditions

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// maxMessage keeps a condition readable in kubectl describe and the status far
// from the size limits of etcd.
const maxMessage = 512

// List is a condition list under construction. Conditions that are not set
// again are dropped, so that an abnormal condition goes with its cause.
type List struct {
	before     []metav1.Condition
	generation int64
	now        metav1.Time
	list       []metav1.Condition
}

// From starts a list for an object of the given generation. Conditions of
// before lend their transition time to equal ones of the new list.
func From(before []metav1.Condition, generation int64, now time.Time) *List {
	return &List{before: before, generation: generation, now: metav1.NewTime(now).Rfc3339Copy()}
}

// Set adds a condition or replaces the one of the same type.
func (l *List) Set(kind string, status metav1.ConditionStatus, reason, message string) {
	c := metav1.Condition{
		Type: kind, Status: status, ObservedGeneration: l.generation,
		LastTransitionTime: l.now, Reason: reason, Message: truncate(message),
	}
	if old := Find(l.before, kind); old != nil && old.Status == status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	if at := slices.IndexFunc(l.list, func(have metav1.Condition) bool { return have.Type == kind }); at >= 0 {
		l.list[at] = c
		return
	}
	l.list = append(l.list, c)
}

// True, False and Unknown are Set with that status.
func (l *List) True(kind, reason, message string) { l.Set(kind, metav1.ConditionTrue, reason, message) }

// False sets the condition to False.
func (l *List) False(kind, reason, message string) {
	l.Set(kind, metav1.ConditionFalse, reason, message)
}

// Unknown sets the condition to Unknown.
func (l *List) Unknown(kind, reason, message string) {
	l.Set(kind, metav1.ConditionUnknown, reason, message)
}

// Conditions returns the list in the order in which it was set.
func (l *List) Conditions() []metav1.Condition { return l.list }

// Find returns the condition of that type of the list under construction, or nil.
func (l *List) Find(kind string) *metav1.Condition { return Find(l.list, kind) }

// Summarize puts kind first in the list: True with the given reason when all
// parts are True. Otherwise it copies the first part that is False, else the first that is
// Unknown: what is known to be wrong tells more than what is not yet known.
func (l *List) Summarize(kind, reason, message string, parts ...string) {
	l.summarize(kind, reason, message, parts)
	last := len(l.list) - 1
	summary := l.list[last]
	copy(l.list[1:], l.list[:last])
	l.list[0] = summary
}

func (l *List) summarize(kind, reason, message string, parts []string) {
	var unknown *metav1.Condition
	for _, part := range parts {
		c := Find(l.list, part)
		switch {
		case c == nil || c.Status == metav1.ConditionTrue:
		case c.Status == metav1.ConditionFalse:
			l.False(kind, c.Reason, c.Message)
			return
		case unknown == nil:
			unknown = c
		}
	}
	if unknown != nil {
		l.Unknown(kind, unknown.Reason, unknown.Message)
		return
	}
	l.True(kind, reason, message)
}

// Find returns the condition of that type, or nil.
func Find(list []metav1.Condition, kind string) *metav1.Condition {
	for i := range list {
		if list[i].Type == kind {
			return &list[i]
		}
	}
	return nil
}

// IsTrue says whether the condition is there and True.
func IsTrue(list []metav1.Condition, kind string) bool {
	c := Find(list, kind)
	return c != nil && c.Status == metav1.ConditionTrue
}

// truncate cuts at a rune so that the API server accepts the text.
func truncate(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	const ellipsis = "…"
	end := maxMessage - len(ellipsis)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + ellipsis
}

// Effective words condition FullyEffective for the paths of fields that are set
// and do nothing yet.
func Effective(paths []string) (reason, message string, ok bool) {
	if len(paths) == 0 {
		return v1alpha1.ReasonAllEffective, "Every field that is set has its effect.", true
	}
	return v1alpha1.ReasonNotYetEffective,
		"Accepted, and without effect in this version: " + strings.Join(paths, ", ") + ".", false
}
