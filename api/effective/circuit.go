package effective

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// lanes are all lanes, in the order in which a bundle lists them.
var lanes = []v1alpha1.Lane{
	v1alpha1.LaneHTTP, v1alpha1.LaneWebSocket, v1alpha1.LaneCompact, v1alpha1.LaneMedia, v1alpha1.LaneBackground,
}

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
	out.Bulkheads = bulkheads(out.Bulkheads[0], c.Spec.Bulkheads)
	fillDeadlines(&out.Deadlines, c.Spec.Deadlines)

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

// bulkheads lists lanes in a fixed order, so that the order of a manifest does
// not change the hash of the bundle. HTTP is always there.
func bulkheads(http bundle.Bulkhead, written []v1alpha1.Bulkhead) []bundle.Bulkhead {
	var out []bundle.Bulkhead
	for _, lane := range lanes {
		b := find(written, lane)
		switch {
		case b != nil:
			out = append(out, bulkhead(b))
		case lane == v1alpha1.LaneHTTP:
			out = append(out, http)
		}
	}
	return out
}

func bulkhead(b *v1alpha1.Bulkhead) bundle.Bulkhead {
	out := bundle.Bulkhead{Lane: string(b.Lane), QueueTimeoutSeconds: defaultQueueTimeoutSeconds}
	set(&out.QueueTimeoutSeconds, b.QueueTimeoutSeconds)
	if b.Mode == v1alpha1.BulkheadUnlimited {
		return out
	}
	if b.Lane == v1alpha1.LaneHTTP {
		out.MaxQueued = defaultHTTPQueued
	}
	set(&out.MaxConcurrent, b.MaxConcurrent)
	set(&out.MaxQueued, b.MaxQueued)
	return out
}

func find(written []v1alpha1.Bulkhead, lane v1alpha1.Lane) *v1alpha1.Bulkhead {
	for i := range written {
		if written[i].Lane == lane {
			return &written[i]
		}
	}
	return nil
}
