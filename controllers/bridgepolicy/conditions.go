package bridgepolicy

import (
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apieffective "github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/apply"
	"github.com/causeway-dev/causeway/controllers/internal/conditions"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
	"github.com/causeway-dev/causeway/controllers/internal/plan"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
)

// readyParts are the conditions that Ready is the conjunction of.
var readyParts = []string{
	v1alpha1.ConditionAccepted, v1alpha1.ConditionResolvedRefs,
	v1alpha1.ConditionProgrammed, v1alpha1.ConditionAvailable, v1alpha1.ConditionActivated,
}

// conditionsOf says how the bridge is. It is pure.
func conditionsOf(w plan.World, p plan.Plan, applyErr error, now time.Time) []metav1.Condition {
	l := conditions.From(w.Policy.Status.Conditions, w.Policy.Generation, now)
	setVerdict(l, v1alpha1.ConditionAccepted, p.Accepted)
	setVerdict(l, v1alpha1.ConditionResolvedRefs, p.Refs)
	l.Set(v1alpha1.ConditionProgrammed, p.Programmed.Status, p.Programmed.Reason, p.Programmed.Message)
	setAvailable(l, w, p)
	setVerdict(l, v1alpha1.ConditionActivated, p.Rollout.Activation.Verdict)
	rollout := rolloutOf(w, p)
	setVerdict(l, v1alpha1.ConditionUpToDate, rollout)
	setUpstreamHealthy(l, w, p.Reports)
	setReportsFresh(l, w, p.Reports)
	setFullyEffective(l, w.Policy)
	setWarning(l, p.Warnings)
	if p.Paused {
		l.True(v1alpha1.ConditionPaused, v1alpha1.ReasonPausedByUser,
			"spec.management is Paused: child objects are left as they are.")
	}
	setProgress(l, p, rollout, applyErr)
	l.Summarize(v1alpha1.ConditionReady, v1alpha1.ReasonReady, "The bridge serves.", readyParts...)
	return l.Conditions()
}

func setVerdict(l *conditions.List, kind string, v plan.Verdict) {
	if v.OK {
		l.True(kind, v.Reason, v.Message)
		return
	}
	l.False(kind, v.Reason, v.Message)
}

// setAvailable asks for what a drain of nodes may leave: all but one, and one at
// least.
func setAvailable(l *conditions.List, w plan.World, p plan.Plan) {
	wanted, ready := wantedReplicas(w, p), readyPods(w, p.Active)
	switch {
	case wanted == 0:
		l.True(v1alpha1.ConditionAvailable, v1alpha1.ReasonScaledToZero, "No proxy is wanted.")
	case ready >= max(1, wanted-1):
		l.True(v1alpha1.ConditionAvailable, v1alpha1.ReasonMinimumReplicasReady, "Enough proxies are ready.")
	default:
		reason, message := whyUnavailable(w, p.Active)
		l.False(v1alpha1.ConditionAvailable, reason, message)
	}
}

// troubles are what the kubelet says about a container that does not start.
var troubles = map[string]struct{ reason, message string }{
	"ErrImagePull":               {v1alpha1.ReasonImagePullFailed, "The image of the proxy cannot be pulled."},
	"ImagePullBackOff":           {v1alpha1.ReasonImagePullFailed, "The image of the proxy cannot be pulled."},
	"ErrImageNeverPull":          {v1alpha1.ReasonImagePullFailed, "The image of the proxy is not on the node and must not be pulled."},
	"InvalidImageName":           {v1alpha1.ReasonImagePullFailed, "The reference of the image is not valid."},
	"CrashLoopBackOff":           {v1alpha1.ReasonCrashLooping, "The proxy ends again and again; its log says why."},
	"CreateContainerConfigError": {v1alpha1.ReasonNoReadyReplicas, "The container of the proxy cannot be configured."},
}

func whyUnavailable(w plan.World, active v1alpha1.SlotName) (reason, message string) {
	for _, r := range w.Reports {
		if r.Slot() != active {
			continue
		}
		for _, c := range r.Pod.Status.ContainerStatuses {
			if c.State.Waiting == nil {
				continue
			}
			if t, ok := troubles[c.State.Waiting.Reason]; ok {
				return t.reason, t.message
			}
		}
		for _, c := range r.Pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
				return v1alpha1.ReasonUnschedulable, "No node takes the proxy; the events of its pod say why."
			}
		}
	}
	if d := w.Slots[active]; d != nil {
		for _, c := range d.Status.Conditions {
			if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, "exceeded quota") {
				return v1alpha1.ReasonQuotaExceeded, "A quota of the namespace keeps proxies from being created."
			}
		}
	}
	return v1alpha1.ReasonNoReadyReplicas, "Too few proxies are ready."
}

// rolloutOf says whether the active slot is what the spec wants.
func rolloutOf(w plan.World, p plan.Plan) plan.Verdict {
	d, verdict := w.Slots[p.Active], p.Rollout.UpToDate
	switch {
	case d == nil || !verdict.OK:
		return verdict
	case deadlineExceeded(d):
		return plan.Verdict{Reason: v1alpha1.ReasonRolloutFailed, Message: "The wanted revision did not become ready in time."}
	case !effective.RolledOut(d):
		return plan.Verdict{Reason: v1alpha1.ReasonRolloutInProgress, Message: "Proxies of the wanted revision are being started."}
	default:
		return verdict
	}
}

func deadlineExceeded(d *appsv1.Deployment) bool {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			return c.Reason == "ProgressDeadlineExceeded"
		}
	}
	return false
}

func setUpstreamHealthy(l *conditions.List, w plan.World, m reports.Merged) {
	const kind = v1alpha1.ConditionUpstreamHealthy
	if m.Fresh == 0 || len(m.Accounts) == 0 && len(m.Circuits) == 0 {
		l.Unknown(kind, v1alpha1.ReasonNoReports, "No proxy reports about the upstream.")
		return
	}
	for _, c := range m.Circuits {
		if (c.Scope == v1alpha1.CircuitScopeProvider || c.Scope == v1alpha1.CircuitScopeRoute) && c.State == v1alpha1.CircuitOpen {
			l.False(kind, v1alpha1.ReasonCircuitOpen, "A circuit of a whole route is open; status.circuits.top says which and until when.")
			return
		}
	}
	switch usable, reauth := accountsOf(w.Pool, m); {
	case usable > 0 || len(m.Accounts) == 0:
		l.True(kind, v1alpha1.ReasonAllClear, "No circuit of a route is open and accounts are usable.")
	case reauth > 0:
		l.False(kind, v1alpha1.ReasonReauthRequired, "No account is usable and at least one needs a new login.")
	default:
		l.False(kind, v1alpha1.ReasonAccountsExhausted, "No account is usable; the status of the AccountPool says why.")
	}
}

// accountsOf counts the reported accounts that the pool still has.
func accountsOf(pool *v1alpha1.AccountPool, m reports.Merged) (usable, reauth int) {
	if pool == nil {
		return 0, 0
	}
	for _, a := range pool.Spec.Accounts {
		switch m.Accounts[a.Name].State {
		case v1alpha1.AccountConditionUsable:
			usable++
		case v1alpha1.AccountConditionReauthRequired:
			reauth++
		default:
		}
	}
	return usable, reauth
}

func setReportsFresh(l *conditions.List, w plan.World, m reports.Merged) {
	const kind = v1alpha1.ConditionReportsFresh
	ever := m.Fresh > 0
	for _, r := range w.Reports {
		ever = ever || r.Replica != nil && r.Replica.Status.ReportedAt != nil
	}
	switch {
	case !ever:
		l.Unknown(kind, v1alpha1.ReasonNoReports, "No proxy has reported yet.")
	case m.Stale > 0:
		l.False(kind, v1alpha1.ReasonSomeStale, "Some proxies are not ready or have not reported for 30 minutes.")
	default:
		l.True(kind, v1alpha1.ReasonFresh, "All proxies report.")
	}
}

func setFullyEffective(l *conditions.List, policy *v1alpha1.BridgePolicy) {
	reason, message, ok := conditions.Effective(apieffective.NotYetEffective(policy))
	setVerdict(l, v1alpha1.ConditionFullyEffective, plan.Verdict{OK: ok, Reason: reason, Message: message})
}

func setWarning(l *conditions.List, warnings []apieffective.Warning) {
	switch len(warnings) {
	case 0:
	case 1:
		l.True(v1alpha1.ConditionWarning, warnings[0].Reason, warnings[0].Message)
	default:
		texts := make([]string, len(warnings))
		for i, w := range warnings {
			texts[i] = w.Message
		}
		l.True(v1alpha1.ConditionWarning, v1alpha1.ReasonSeveralWarnings, strings.Join(texts, "; "))
	}
}

// setProgress sets Stalled or Reconciling, never both: what stalls does not go on.
func setProgress(l *conditions.List, p plan.Plan, rollout plan.Verdict, applyErr error) {
	var refusal *apply.Refusal
	stalled := func(reason, message string) { l.True(v1alpha1.ConditionStalled, reason, message) }
	switch {
	case !p.Accepted.OK:
		stalled(v1alpha1.ReasonInvalidSpec, p.Accepted.Message)
	case errors.As(applyErr, &refusal) && errors.Is(applyErr, apply.ErrAdoptionRefused):
		stalled(v1alpha1.ReasonAdoptionRefused, fmt.Sprintf(
			"%s %s exists and does not belong to this BridgePolicy: rename the policy or remove that object.", refusal.Kind, refusal.Name))
	case errors.As(applyErr, &refusal) && errors.Is(applyErr, apply.ErrForbidden):
		stalled(v1alpha1.ReasonForbidden, fmt.Sprintf(
			"The operator may not write %s %s: look at its roles and at the quotas of the namespace.", refusal.Kind, refusal.Name))
	case rollout.Reason == v1alpha1.ReasonRolloutFailed && p.Rollout.ByUser():
		stalled(v1alpha1.ReasonRolloutFailed, rollout.Message)
	case rollout.Reason == v1alpha1.ReasonRolloutFailed:
		stalled(v1alpha1.ReasonProgressDeadlineExceeded, rollout.Message)
	case !p.Refs.OK:
		l.True(v1alpha1.ConditionReconciling, v1alpha1.ReasonWaitingForRefs, p.Refs.Message)
	case p.Paused:
	case p.Rollout.Waiting:
		l.True(v1alpha1.ConditionReconciling, v1alpha1.ReasonWaitingForDrain, rollout.Message)
	case !rollout.OK:
		l.True(v1alpha1.ConditionReconciling, rollout.Reason, rollout.Message)
	case p.Rollout.Step == v1alpha1.StepSwitching:
		l.True(v1alpha1.ConditionReconciling, v1alpha1.ReasonRolloutInProgress, "Clients are led to the active slot.")
	}
}
