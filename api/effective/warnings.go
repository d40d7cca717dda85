package effective

import (
	"fmt"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// Warning is something valid and risky that a BridgePolicy asks for.
type Warning struct {
	// Reason is one of v1alpha1.ReasonOpenClients, ReasonMemoryStore,
	// ReasonCapacityExceeded and ReasonInvalidAnnotation.
	Reason string
	// Message names the field and the way out, in one sentence.
	Message string
}

// Warnings lists what is risky about a bridge, in a stable order.
func Warnings(b *v1alpha1.BridgePolicy, pool bundle.Pool) []Warning {
	s := SettingsOf(b)
	var out []Warning
	warn := func(reason, format string, args ...any) {
		out = append(out, Warning{Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	if s.ClientsMode == v1alpha1.ClientsOpen {
		warn(v1alpha1.ReasonOpenClients,
			"spec.clients.mode Open lets everybody spend the pool who can reach the Service: use Required with keysSecretRef")
	}
	if s.StoreType == v1alpha1.StoreMemory {
		if pool.CapacityScope == string(v1alpha1.CapacityShared) {
			warn(v1alpha1.ReasonMemoryStore,
				"capacityScope Shared of the pool needs a shared store: set spec.store to type Redis; limits hold per replica until then")
		}
		if s.MaxReplicas > 1 {
			warn(v1alpha1.ReasonMemoryStore,
				"spec.store type Memory with up to %d replicas: a session that moves to another replica starts with a full upload",
				s.MaxReplicas)
		}
	}
	if pool.CapacityScope == string(v1alpha1.CapacityPartitioned) {
		for _, a := range pool.Accounts {
			if a.MaxConcurrent > 0 && int(s.MaxReplicas) > a.MaxConcurrent {
				warn(v1alpha1.ReasonCapacityExceeded,
					"up to %d replicas get at least 1 turn each of account %s, whose limits.maxConcurrent is %d: use fewer replicas",
					s.MaxReplicas, a.Name, a.MaxConcurrent)
			}
		}
	}
	return append(out, AnnotationWarnings(b)...)
}
