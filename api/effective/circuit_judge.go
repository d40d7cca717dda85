package effective

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

func (j *judge) circuit(s *v1alpha1.CircuitPolicySpec, at *field.Path) {
	if s.RetryCircuit != nil {
		j.retry(s.RetryCircuit, at.Child("retryCircuit"))
	}
	if s.Breaker != nil {
		j.breaker(s.Breaker, at.Child("breaker"))
	}
	if q := s.Quarantine; q != nil {
		here := at.Child("quarantine")
		number(j, here.Child("eventlessThreshold"), q.EventlessThreshold, 1, 20)
		number(j, here.Child("retainSeconds"), q.RetainSeconds, 60, 86400)
	}
	if e := s.Ejection; e != nil {
		here := at.Child("ejection")
		number(j, here.Child("consecutiveFailures"), e.ConsecutiveFailures, 1, 100)
		number(j, here.Child("baseSeconds"), e.BaseSeconds, 1, 3600)
		number(j, here.Child("maxSeconds"), e.MaxSeconds, 1, 86400)
		number(j, here.Child("maxEjectPercent"), e.MaxEjectPercent, 0, 100)
		j.rule(atMost(e.BaseSeconds, e.MaxSeconds), here,
			"baseSeconds must be at most maxSeconds: lower it or raise maxSeconds")
	}
	j.bulkheads(s.Bulkheads, at.Child("bulkheads"))
	if s.Deadlines != nil {
		j.deadlines(s.Deadlines, at.Child("deadlines"))
	}
}

func (j *judge) retry(r *v1alpha1.RetryCircuit, at *field.Path) {
	number(j, at.Child("maxAttempts"), r.MaxAttempts, 1, 5)
	number(j, at.Child("budgetPercent"), r.BudgetPercent, 0, 100)
	number(j, at.Child("failureThreshold"), r.FailureThreshold, 1, 20)
	number(j, at.Child("baseBackoffSeconds"), r.BaseBackoffSeconds, 1, 3600)
	number(j, at.Child("maxBackoffSeconds"), r.MaxBackoffSeconds, 1, 86400)
	number(j, at.Child("cleanCloseMaxBackoffSeconds"), r.CleanCloseMaxBackoffSeconds, 1, 3600)
	number(j, at.Child("halfOpenLeaseSeconds"), r.HalfOpenLeaseSeconds, 5, 3600)
	number(j, at.Child("stateTTLSeconds"), r.StateTTLSeconds, 60, 604800)
	choices(j, at.Child("retryOn"), r.RetryOn, retryReasons)
	j.rule(atMost(r.BaseBackoffSeconds, r.MaxBackoffSeconds), at,
		"baseBackoffSeconds must be at most maxBackoffSeconds: lower it or raise maxBackoffSeconds")
	j.rule(atMost(r.CleanCloseMaxBackoffSeconds, r.MaxBackoffSeconds), at,
		"cleanCloseMaxBackoffSeconds must be at most maxBackoffSeconds: lower it or raise maxBackoffSeconds")
}

func (j *judge) breaker(b *v1alpha1.Breaker, at *field.Path) {
	oneOf(j, at.Child("scope"), b.Scope, v1alpha1.BreakerRoute, v1alpha1.BreakerProvider)
	number(j, at.Child("consecutiveFailures"), b.ConsecutiveFailures, 1, 100)
	number(j, at.Child("windowSeconds"), b.WindowSeconds, 10, 600)
	number(j, at.Child("minSamples"), b.MinSamples, 1, 10000)
	number(j, at.Child("failurePercent"), b.FailurePercent, 1, 100)
	number(j, at.Child("minDistinctAccounts"), b.MinDistinctAccounts, 1, 64)
	number(j, at.Child("minDistinctCallers"), b.MinDistinctCallers, 1, 64)
	number(j, at.Child("openSeconds"), b.OpenSeconds, 1, 3600)
	number(j, at.Child("maxOpenSeconds"), b.MaxOpenSeconds, 1, 3600)
	number(j, at.Child("halfOpenMaxCalls"), b.HalfOpenMaxCalls, 1, 10)
	number(j, at.Child("successThreshold"), b.SuccessThreshold, 1, 10)
	number(j, at.Child("probeVerdictSeconds"), b.ProbeVerdictSeconds, 1, 3600)
	choices(j, at.Child("countedFailures"), b.CountedFailures, countedFailures)
	j.rule(atMost(b.OpenSeconds, b.MaxOpenSeconds), at,
		"openSeconds must be at most maxOpenSeconds: lower it or raise maxOpenSeconds")
}

func (j *judge) bulkheads(written []v1alpha1.Bulkhead, at *field.Path) {
	j.items(at, len(written), 8)
	keys := make([]v1alpha1.Lane, 0, len(written))
	for i := range written {
		b, here := &written[i], at.Index(i)
		keys = append(keys, b.Lane)
		if j.required(here.Child("lane"), string(b.Lane)) {
			oneOf(j, here.Child("lane"), b.Lane, lanes...)
		}
		if j.required(here.Child("mode"), string(b.Mode)) {
			oneOf(j, here.Child("mode"), b.Mode, v1alpha1.BulkheadLimited, v1alpha1.BulkheadUnlimited)
		}
		number(j, here.Child("maxConcurrent"), b.MaxConcurrent, 1, 100000)
		number(j, here.Child("maxQueued"), b.MaxQueued, 0, 100000)
		number(j, here.Child("queueTimeoutSeconds"), b.QueueTimeoutSeconds, 1, 600)
		bounded := b.MaxConcurrent != nil
		if b.Mode != v1alpha1.BulkheadLimited {
			bounded = b.MaxConcurrent == nil && b.MaxQueued == nil
		}
		j.rule(bounded, here,
			"maxConcurrent must be set with mode Limited; mode Unlimited allows neither it nor maxQueued")
		j.rule(b.MaxQueued == nil || *b.MaxQueued == 0 || b.QueueTimeoutSeconds != nil, here,
			"queueTimeoutSeconds must be set if maxQueued is not 0: add it or set maxQueued to 0")
	}
	distinct(j, at, keys)
}

func (j *judge) deadlines(d *v1alpha1.Deadlines, at *field.Path) {
	number(j, at.Child("connectSeconds"), d.ConnectSeconds, 1, 120)
	number(j, at.Child("tlsSeconds"), d.TLSSeconds, 1, 120)
	number(j, at.Child("responseHeaderSeconds"), d.ResponseHeaderSeconds, 1, 3600)
	number(j, at.Child("firstEventSeconds"), d.FirstEventSeconds, 1, 3600)
	number(j, at.Child("idleSeconds"), d.IdleSeconds, 1, 86400)
	number(j, at.Child("keepaliveSeconds"), d.KeepaliveSeconds, 1, 3600)
	number(j, at.Child("requestSeconds"), d.RequestSeconds, 0, 86400)
	number(j, at.Child("callerMaxSeconds"), d.CallerMaxSeconds, 1, 86400)
	number(j, at.Child("cancelGraceSeconds"), d.CancelGraceSeconds, 0, 60)
	j.rule(d.KeepaliveSeconds == nil || d.IdleSeconds == nil || *d.KeepaliveSeconds < *d.IdleSeconds, at,
		"keepaliveSeconds must be less than idleSeconds: lower it or raise idleSeconds")
	unbounded := d.RequestSeconds == nil || *d.RequestSeconds == 0
	j.rule(d.ConnectSeconds == nil || unbounded || *d.ConnectSeconds < *d.RequestSeconds, at,
		"connectSeconds must be less than requestSeconds: lower it, raise requestSeconds or set it to 0")
}

// atMost says whether a <= b, as far as both were written.
func atMost(a, b *int32) bool { return a == nil || b == nil || *a <= *b }

// choices judges a set of enum values.
func choices[T ~string](j *judge, at *field.Path, values, known []T) {
	j.items(at, len(values), 8)
	for i, v := range values {
		if j.required(at.Index(i), string(v)) {
			oneOf(j, at.Index(i), v, known...)
		}
	}
	distinct(j, at, values)
}

// circuitInvariants judges numbers with defaults applied, so that a written
// number cannot contradict a default unseen.
func (j *judge) circuitInvariants(c *bundle.Circuit, at *field.Path) {
	r, retry := &c.RetryCircuit, at.Child("retryCircuit")
	j.invariant(r.BaseBackoffSeconds <= r.MaxBackoffSeconds, retry.Child("baseBackoffSeconds"),
		"baseBackoffSeconds (%d) must be at most maxBackoffSeconds (%d): set both", r.BaseBackoffSeconds, r.MaxBackoffSeconds)
	j.invariant(r.CleanCloseMaxBackoffSeconds <= r.MaxBackoffSeconds, retry.Child("cleanCloseMaxBackoffSeconds"),
		"cleanCloseMaxBackoffSeconds (%d) must be at most maxBackoffSeconds (%d): set both",
		r.CleanCloseMaxBackoffSeconds, r.MaxBackoffSeconds)
	j.invariant(r.StateTTLSeconds >= r.MaxBackoffSeconds+r.HalfOpenLeaseSeconds, retry.Child("stateTTLSeconds"),
		"stateTTLSeconds (%d) must be at least maxBackoffSeconds (%d) + halfOpenLeaseSeconds (%d): raise it or lower the others",
		r.StateTTLSeconds, r.MaxBackoffSeconds, r.HalfOpenLeaseSeconds)

	b, breaker := &c.Breaker, at.Child("breaker")
	j.invariant(b.OpenSeconds <= b.MaxOpenSeconds, breaker.Child("openSeconds"),
		"openSeconds (%d) must be at most maxOpenSeconds (%d): set both", b.OpenSeconds, b.MaxOpenSeconds)
	j.invariant(b.ProbeVerdictSeconds <= b.MaxOpenSeconds, breaker.Child("probeVerdictSeconds"),
		"probeVerdictSeconds (%d) must be at most maxOpenSeconds (%d): lower it or raise maxOpenSeconds",
		b.ProbeVerdictSeconds, b.MaxOpenSeconds)

	e := &c.Ejection
	j.invariant(e.BaseSeconds <= e.MaxSeconds, at.Child("ejection", "baseSeconds"),
		"baseSeconds (%d) must be at most maxSeconds (%d): set both", e.BaseSeconds, e.MaxSeconds)

	j.deadlineInvariants(c, at)
}

func (j *judge) deadlineInvariants(c *bundle.Circuit, at *field.Path) {
	d, here := &c.Deadlines, at.Child("deadlines")
	j.invariant(d.ConnectSeconds+d.TLSSeconds < d.FirstEventSeconds, here.Child("firstEventSeconds"),
		"firstEventSeconds (%d) must be more than connectSeconds (%d) + tlsSeconds (%d): raise it or lower the others",
		d.FirstEventSeconds, d.ConnectSeconds, d.TLSSeconds)
	j.invariant(d.KeepaliveSeconds < d.IdleSeconds, here.Child("keepaliveSeconds"),
		"keepaliveSeconds (%d) must be less than idleSeconds (%d): lower it or raise idleSeconds",
		d.KeepaliveSeconds, d.IdleSeconds)
	if d.RequestSeconds == 0 {
		return
	}
	j.invariant(d.ConnectSeconds < d.RequestSeconds, here.Child("connectSeconds"),
		"connectSeconds (%d) must be less than requestSeconds (%d): lower it, raise requestSeconds or set it to 0",
		d.ConnectSeconds, d.RequestSeconds)
	for _, b := range c.Bulkheads {
		if b.MaxConcurrent == 0 {
			continue // nobody waits in an unlimited lane
		}
		j.invariant(b.QueueTimeoutSeconds < d.RequestSeconds, at.Child("bulkheads").Key(b.Lane).Child("queueTimeoutSeconds"),
			"queueTimeoutSeconds (%d) of lane %s must be less than deadlines.requestSeconds (%d): lower it or raise requestSeconds",
			b.QueueTimeoutSeconds, b.Lane, d.RequestSeconds)
	}
}
