package effective

import (
	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// Echo is the status form of a circuit: the numbers in force.
func Echo(c bundle.Circuit) v1alpha1.EffectiveCircuit {
	var http bundle.Bulkhead
	for _, b := range c.Bulkheads {
		if b.Lane == string(v1alpha1.LaneHTTP) {
			http = b
		}
	}
	return v1alpha1.EffectiveCircuit{
		RetryMaxAttempts:                 narrow(c.RetryCircuit.MaxAttempts),
		RetryBudgetPercent:               narrow(c.RetryCircuit.BudgetPercent),
		RetryFailureThreshold:            narrow(c.RetryCircuit.FailureThreshold),
		RetryBaseBackoffSeconds:          narrow(c.RetryCircuit.BaseBackoffSeconds),
		RetryMaxBackoffSeconds:           narrow(c.RetryCircuit.MaxBackoffSeconds),
		RetryCleanCloseMaxBackoffSeconds: narrow(c.RetryCircuit.CleanCloseMaxBackoffSeconds),
		RetryHalfOpenLeaseSeconds:        narrow(c.RetryCircuit.HalfOpenLeaseSeconds),
		RetryStateTTLSeconds:             narrow(c.RetryCircuit.StateTTLSeconds),
		BreakerConsecutiveFailures:       narrow(c.Breaker.ConsecutiveFailures),
		BreakerWindowSeconds:             narrow(c.Breaker.WindowSeconds),
		BreakerMinSamples:                narrow(c.Breaker.MinSamples),
		BreakerFailurePercent:            narrow(c.Breaker.FailurePercent),
		BreakerMinDistinctAccounts:       narrow(c.Breaker.MinDistinctAccounts),
		BreakerMinDistinctCallers:        narrow(c.Breaker.MinDistinctCallers),
		BreakerOpenSeconds:               narrow(c.Breaker.OpenSeconds),
		BreakerMaxOpenSeconds:            narrow(c.Breaker.MaxOpenSeconds),
		BreakerHalfOpenMaxCalls:          narrow(c.Breaker.HalfOpenMaxCalls),
		BreakerSuccessThreshold:          narrow(c.Breaker.SuccessThreshold),
		BreakerProbeVerdictSeconds:       narrow(c.Breaker.ProbeVerdictSeconds),
		QuarantineEventlessThreshold:     narrow(c.Quarantine.EventlessThreshold),
		QuarantineRetainSeconds:          narrow(c.Quarantine.RetainSeconds),
		EjectionConsecutiveFailures:      narrow(c.Ejection.ConsecutiveFailures),
		EjectionBaseSeconds:              narrow(c.Ejection.BaseSeconds),
		EjectionMaxSeconds:               narrow(c.Ejection.MaxSeconds),
		EjectionMaxEjectPercent:          narrow(c.Ejection.MaxEjectPercent),
		Lanes:                            echoLanes(c.Bulkheads),
		HTTPMaxConcurrent:                narrow(http.MaxConcurrent),
		HTTPMaxQueued:                    narrow(http.MaxQueued),
		HTTPQueueTimeoutSeconds:          narrow(http.QueueTimeoutSeconds),
		ConnectSeconds:                   narrow(c.Deadlines.ConnectSeconds),
		TLSSeconds:                       narrow(c.Deadlines.TLSSeconds),
		ResponseHeaderSeconds:            narrow(c.Deadlines.ResponseHeaderSeconds),
		FirstEventSeconds:                narrow(c.Deadlines.FirstEventSeconds),
		IdleSeconds:                      narrow(c.Deadlines.IdleSeconds),
		KeepaliveSeconds:                 narrow(c.Deadlines.KeepaliveSeconds),
		RequestSeconds:                   narrow(c.Deadlines.RequestSeconds),
		CallerMaxSeconds:                 narrow(c.Deadlines.CallerMaxSeconds),
		CancelGraceSeconds:               narrow(c.Deadlines.CancelGraceSeconds),
	}
}

func echoLanes(bulkheads []bundle.Bulkhead) []v1alpha1.EffectiveLane {
	list := make([]v1alpha1.EffectiveLane, 0, len(bulkheads))
	for _, b := range bulkheads[:min(len(bulkheads), v1alpha1.MaxStatusLanes)] {
		lane := v1alpha1.EffectiveLane{
			Lane: v1alpha1.Lane(b.Lane), Mode: v1alpha1.BulkheadUnlimited, QueueTimeoutSeconds: narrow(b.QueueTimeoutSeconds),
		}
		if b.MaxConcurrent > 0 {
			concurrent, queued := narrow(b.MaxConcurrent), narrow(b.MaxQueued)
			lane.Mode, lane.MaxConcurrent, lane.MaxQueued = v1alpha1.BulkheadLimited, &concurrent, &queued
		}
		list = append(list, lane)
	}
	return list
}

// narrow is safe for numbers that came from an int32 of a manifest.
func narrow(n int) int32 { return int32(n) } //nolint:gosec // bounded by the schema, see above
