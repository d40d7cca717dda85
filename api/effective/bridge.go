package effective

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// Bridge makes the bundle of a BridgePolicy out of its parts and judges the
// policy, alone and together with them. The bundle is not sealed, and is of use
// only if there is no error.
func Bridge(b *v1alpha1.BridgePolicy, pool bundle.Pool, circuit bundle.Circuit) (bundle.Bundle, field.ErrorList) {
	s := SettingsOf(b)
	out := bundle.Bundle{
		Generation: b.Generation,
		Namespace:  b.Namespace,
		Name:       b.Name,
		Pool:       pool,
		Circuit:    circuit,
		Clients:    bundle.Clients{Mode: string(s.ClientsMode)},
		Store:      bundle.Store{Type: string(s.StoreType)},
		Drain: bundle.Drain{
			SoftSeconds:        int(s.DrainSoftSeconds),
			PodGraceSeconds:    int(s.PodGraceSeconds),
			PreStopSeconds:     int(s.PreStopSeconds),
			EndpointLagSeconds: int(s.EndpointLagSeconds),
		},
		Reporting: bundle.Reporting{Mode: string(s.ReportingMode), MinIntervalSeconds: int(s.ReportSeconds)},

		ResetCircuits: ResetToken(b),
		ForceCircuits: ForcedCircuits(b),
	}
	if s.RolloutType == v1alpha1.RolloutBlueGreen {
		out.Activation = &bundle.Activation{
			Lease: ActivationLease(b.Name), HoldSeconds: int(s.HoldSeconds),
			LeaseSeconds: int(s.LeaseSeconds), RenewSeconds: int(s.RenewSeconds), RetrySeconds: int(s.RetrySeconds),
		}
	}
	if b.Spec.Store != nil && b.Spec.Store.Redis != nil {
		out.Store.Addresses = append([]string(nil), b.Spec.Store.Redis.Addresses...)
		out.Store.TLS = string(s.StoreTLS)
	}

	j := &judge{}
	j.bridge(b)
	if len(j.errs) == 0 { // numbers out of bounds would only break invariants as well
		j.bridgeInvariants(s, circuit, field.NewPath("spec"))
	}
	return out, j.errs
}

// ActivationLease names the Lease by which the slots of a bridge take turns.
func ActivationLease(bridge string) string { return bridge + "-activation" }

// bridgeInvariants judges numbers with defaults applied, together with the
// circuit policy.
func (j *judge) bridgeInvariants(s Settings, circuit bundle.Circuit, at *field.Path) {
	if request := circuit.Deadlines.RequestSeconds; request != 0 && s.RolloutType == v1alpha1.RolloutBlueGreen {
		j.invariant(int(s.DrainDeadline) >= request, at.Child("rollout", "blueGreen", "drainDeadlineSeconds"),
			"drainDeadlineSeconds (%d) must be at least deadlines.requestSeconds (%d) of the circuit policy: raise it or lower that",
			s.DrainDeadline, request)
	}
	j.invariant(s.PodGraceSeconds >= s.PreStopSeconds+s.EndpointLagSeconds+podGraceReserve, at.Child("drain", "podGraceSeconds"),
		"podGraceSeconds (%d) must be at least preStopSeconds (%d) + endpointLagSeconds (%d) + %d: raise it or lower the others",
		s.PodGraceSeconds, s.PreStopSeconds, s.EndpointLagSeconds, podGraceReserve)

	activation := at.Child("activation")
	j.invariant(2*s.LeaseSeconds >= 3*s.RenewSeconds, activation.Child("leaseDurationSeconds"),
		"leaseDurationSeconds (%d) must be at least 1.5 times renewDeadlineSeconds (%d): raise it or lower renewDeadlineSeconds",
		s.LeaseSeconds, s.RenewSeconds)
	j.invariant(s.RenewSeconds >= 3*s.RetrySeconds, activation.Child("renewDeadlineSeconds"),
		"renewDeadlineSeconds (%d) must be at least 3 times retryPeriodSeconds (%d): raise it or lower retryPeriodSeconds",
		s.RenewSeconds, s.RetrySeconds)
}
