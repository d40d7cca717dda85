package plan

import (
	"strconv"
	"time"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// Marks are what is noted on the Deployment of a slot about its rollout. Each is
// written before what it announces, and nothing else is remembered: an operator
// that starts anew goes on where its predecessor stopped.
type Marks struct {
	// PromotedAt is when the slot last became active. Of two slots, the one that
	// was promoted later is the active one.
	PromotedAt time.Time
	// StartedAt is when the slot became a candidate; ReadyAt when it began to wait
	// at the gate; HandoverAt when authority was asked for it; VacantAt when the
	// slot before was seen to have given authority up.
	StartedAt, ReadyAt, HandoverAt, VacantAt time.Time
	// DrainingAt is when a slot without authority ceased to get traffic; DrainedAt
	// when it had nothing left to do, or no time left for it; EmptiedAt when its
	// pods were given up.
	DrainingAt, DrainedAt, EmptiedAt time.Time
	// Failed is a revision that is not tried again, FailedReason why.
	Failed, FailedReason string
	// FollowedRollback and FollowedCut are wishes of the user that were followed:
	// their annotations are still there and mean nothing any more.
	FollowedRollback, FollowedCut string
	// Epoch is the newest one that was seen on the Lease, should that be deleted
	// while no proxy is there that knows it.
	Epoch int64
}

// Why a revision is not tried again.
const (
	failedDeadline = "Deadline"
	failedHandover = "Handover"
	failedAborted  = "Aborted"
	failedRollback = "RolledBack"
	failedTurns    = "TurnsFailed"
)

// times and texts pair each annotation with its field.
func (m *Marks) times() map[string]*time.Time {
	return map[string]*time.Time{
		v1alpha1.AnnotationPromotedAt: &m.PromotedAt,
		v1alpha1.AnnotationStartedAt:  &m.StartedAt,
		v1alpha1.AnnotationReadyAt:    &m.ReadyAt,
		v1alpha1.AnnotationHandoverAt: &m.HandoverAt,
		v1alpha1.AnnotationVacantAt:   &m.VacantAt,
		v1alpha1.AnnotationDrainingAt: &m.DrainingAt,
		v1alpha1.AnnotationDrainedAt:  &m.DrainedAt,
		v1alpha1.AnnotationEmptiedAt:  &m.EmptiedAt,
	}
}

func (m *Marks) texts() map[string]*string {
	return map[string]*string{
		v1alpha1.AnnotationFailedRevision: &m.Failed,
		v1alpha1.AnnotationFailedReason:   &m.FailedReason,
		v1alpha1.AnnotationRollbackTo:     &m.FollowedRollback,
		v1alpha1.AnnotationCutDrain:       &m.FollowedCut,
	}
}

// readMarks reads the annotations of a Deployment. What is no time is as good as
// missing.
func readMarks(annotations map[string]string) Marks {
	var m Marks
	for key, at := range m.times() {
		*at = parseTime(annotations[key])
	}
	for key, text := range m.texts() {
		*text = annotations[key]
	}
	m.Epoch, _ = strconv.ParseInt(annotations[v1alpha1.AnnotationEpoch], 10, 64)
	return m
}

// Annotations are the marks as they are written; a nil value is none.
func (m Marks) Annotations() map[string]any {
	out := map[string]any{}
	for key, at := range m.times() {
		if out[key] = nil; !at.IsZero() {
			out[key] = formatTime(*at)
		}
	}
	for key, text := range m.texts() {
		if out[key] = nil; *text != "" {
			out[key] = *text
		}
	}
	if out[v1alpha1.AnnotationEpoch] = nil; m.Epoch > 0 {
		out[v1alpha1.AnnotationEpoch] = strconv.FormatInt(m.Epoch, 10)
	}
	return out
}

// kept are the marks that outlive what the slot was for.
func (m Marks) kept() Marks {
	return Marks{Failed: m.Failed, FailedReason: m.FailedReason,
		FollowedRollback: m.FollowedRollback, FollowedCut: m.FollowedCut, Epoch: m.Epoch}
}

func parseTime(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return at
}

func formatTime(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// seconds is a setting as a duration.
func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }
