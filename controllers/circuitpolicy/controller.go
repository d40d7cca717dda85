// Package circuitpolicy reconciles CircuitPolicies. It makes no objects; all it
// writes is status.
package circuitpolicy

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apieffective "github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/apply"
	"github.com/causeway-dev/causeway/controllers/internal/conditions"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
	"github.com/causeway-dev/causeway/controllers/internal/observe"
	"github.com/causeway-dev/causeway/controllers/internal/status"
)

// Reconciler reconciles CircuitPolicies. It is safe for concurrent use.
type Reconciler struct {
	Client client.Client
	Status *status.Writer
	Clock  clock.PassiveClock
}

// Reconcile writes the status of one circuit policy.
func (r *Reconciler) Reconcile(ctx context.Context, circuit *v1alpha1.CircuitPolicy) (ctrl.Result, error) {
	if !circuit.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	keys, err := observe.Policies(ctx, r.Client, circuit.Namespace, observe.IndexCircuit, circuit.Name)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading state of CircuitPolicy: %w", err)
	}
	policies := make([]string, len(keys))
	for i, key := range keys {
		policies[i] = key.Name
	}
	err = r.Status.Write(ctx, circuit, statusOf(circuit, policies, r.Clock.Now()))
	wait, err := apply.Retry(err, 0)
	return ctrl.Result{RequeueAfter: wait}, err
}

// statusOf returns the circuit policy with its status. It is pure.
func statusOf(before *v1alpha1.CircuitPolicy, policies []string, now time.Time) *v1alpha1.CircuitPolicy {
	circuit := before.DeepCopy()
	resolved, errs := apieffective.Circuit(circuit)
	s := &circuit.Status
	s.ObservedGeneration = circuit.Generation
	s.BoundPolicies = status.Bound(policies)

	l := conditions.From(s.Conditions, circuit.Generation, now)
	if len(errs) > 0 {
		// The echo of the last accepted form stays: it is what bridges still use.
		l.False(v1alpha1.ConditionAccepted, apieffective.Reason(errs), apieffective.Message(errs))
	} else {
		echo := apieffective.Echo(resolved)
		s.Effective, s.EffectiveHash = &echo, effective.Hash(resolved)
		l.True(v1alpha1.ConditionAccepted, v1alpha1.ReasonValid, "The spec is valid.")
	}
	reason, message, ok := conditions.Effective(apieffective.NotYetEffective(circuit))
	full := metav1.ConditionFalse
	if ok {
		full = metav1.ConditionTrue
	}
	l.Set(v1alpha1.ConditionFullyEffective, full, reason, message)
	l.Summarize(v1alpha1.ConditionReady, v1alpha1.ReasonReady, "The policy can be used.", v1alpha1.ConditionAccepted)
	s.Conditions = l.Conditions()
	return circuit
}
