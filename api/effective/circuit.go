package effective

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// Circuit applies defaults to a CircuitPolicy and judges it; nil is the built-in
// profile. The bundle is of use only if there is no error.
func Circuit(c *v1alpha1.CircuitPolicy) (bundle.Circuit, field.ErrorList) {
	out := defaultCircuit()
	if c == nil {
		return out, nil
	}
	out.Name = c.Name
	fillRetry(&out.RetryCircuit, c.Spec.RetryCircuit)
	fillBreaker(&out.Breaker, c.Spec.Breaker)
	if q := c.Spec.Quarantine; q != nil {
		set(&out.Quarantine.EventlessThreshold, q.EventlessThreshold)
		set(&out.Quarantine.RetainSeconds, q.RetainSeconds)
	}
	if e := c.Spec.Ejection; e != nil {
		set(&out.Ejection.ConsecutiveFailures, e.ConsecutiveFailures)
		set(&out.Ejection.BaseSeconds, e.BaseSeconds)
		set(&out.Ejection.MaxSeconds, e.MaxSeconds)
		set(&out.Ejection.MaxEjectPercent, e.MaxEjectPercent)
	}
	fillDeadlines(&out.Deadlines, c.Spec.Deadlines)
	out.Bulkheads = bulkheads(c.Spec.Bulkheads, out.Deadlines.RequestSeconds)

	j := &judge{}
	j.metadata(c.Name)
	j.circuit(&c.Spec, field.NewPath("spec"))
	if len(j.errs) == 0 { // numbers out of bounds would only break invariants as well
		j.circuitInvariants(&out, field.NewPath("spec"))
	}
	return out, j.errs
}

func fillRetry(out *bundle.RetryCircuit, r *v1alpha1.RetryCircuit) {
	if r == nil {
		return
	}
	set(&out.MaxAttempts, r.MaxAttempts)
	set(&out.BudgetPercent, r.BudgetPercent)
	set(&out.FailureThreshold, r.FailureThreshold)
	set(&out.BaseBackoffSeconds, r.BaseBackoffSeconds)
	set(&out.MaxBackoffSeconds, r.MaxBackoffSeconds)
	set(&out.CleanCloseMaxBackoffSeconds, r.CleanCloseMaxBackoffSeconds)
	set(&out.HalfOpenLeaseSeconds, r.HalfOpenLeaseSeconds)
	set(&out.StateTTLSeconds, r.StateTTLSeconds)
	if r.RetryOn != nil {
		out.RetryOn = texts(r.RetryOn)
	}
}

func fillBreaker(out *bundle.Breaker, b *v1alpha1.Breaker) {
	if b == nil {
		return
	}
	choose(&out.Scope, b.Scope)
	set(&out.ConsecutiveFailures, b.ConsecutiveFailures)
	set(&out.WindowSeconds, b.WindowSeconds)
	set(&out.MinSamples, b.MinSamples)
	set(&out.FailurePercent, b.FailurePercent)
	set(&out.MinDistinctAccounts, b.MinDistinctAccounts)
	set(&out.MinDistinctCallers, b.MinDistinctCallers)
	set(&out.OpenSeconds, b.OpenSeconds)
	set(&out.MaxOpenSeconds, b.MaxOpenSeconds)
	set(&out.HalfOpenMaxCalls, b.HalfOpenMaxCalls)
	set(&out.SuccessThreshold, b.SuccessThreshold)
	set(&out.ProbeVerdictSeconds, b.ProbeVerdictSeconds)
	if b.CountedFailures != nil {
		out.CountedFailures = texts(b.CountedFailures)
	}
}

func fillDeadlines(out *bundle.Deadlines, d *v1alpha1.Deadlines) {
	if d == nil {
		return
	}
	set(&out.ConnectSeconds, d.ConnectSeconds)
	set(&out.TLSSeconds, d.TLSSeconds)
	set(&out.ResponseHeaderSeconds, d.ResponseHeaderSeconds)
	set(&out.FirstEventSeconds, d.FirstEventSeconds)
	set(&out.IdleSeconds, d.IdleSeconds)
	set(&out.KeepaliveSeconds, d.KeepaliveSeconds)
	set(&out.RequestSeconds, d.RequestSeconds)
	set(&out.CallerMaxSeconds, d.CallerMaxSeconds)
	set(&out.CancelGraceSeconds, d.CancelGraceSeconds)
}

// bulkheads lists all lanes in a fixed order, so that the order of a manifest does
// not change the hash of the bundle. What is not written about a lane other than
// HTTP does not contradict the request budget (seconds; 0 = none).
func bulkheads(written []v1alpha1.Bulkhead, request int) []bundle.Bulkhead {
	out := DefaultBulkheads()
	for i := range out {
		lane := v1alpha1.Lane(out[i].Lane)
		if b := find(written, lane); b != nil {
			fillBulkhead(&out[i], b)
		} else if lane != v1alpha1.LaneHTTP && request > 1 {
			out[i].QueueTimeoutSeconds = min(out[i].QueueTimeoutSeconds, request-1)
		}
	}
	return out
}

func fillBulkhead(out *bundle.Bulkhead, b *v1alpha1.Bulkhead) {
	set(&out.QueueTimeoutSeconds, b.QueueTimeoutSeconds)
	if b.Mode == v1alpha1.BulkheadUnlimited {
		out.MaxConcurrent, out.MaxQueued = 0, 0
		return
	}
	set(&out.MaxConcurrent, b.MaxConcurrent)
	set(&out.MaxQueued, b.MaxQueued)
}

func find(written []v1alpha1.Bulkhead, lane v1alpha1.Lane) *v1alpha1.Bulkhead {
	for i := range written {
		if written[i].Lane == lane {
			return &written[i]
		}
	}
	return nil
}
