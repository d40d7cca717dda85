// Package bridgepolicy reconciles BridgePolicies: observe, plan, apply, status.
package bridgepolicy

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/apply"
	"github.com/causeway-dev/causeway/controllers/internal/notify"
	"github.com/causeway-dev/causeway/controllers/internal/observe"
	"github.com/causeway-dev/causeway/controllers/internal/plan"
	"github.com/causeway-dev/causeway/controllers/internal/status"
)

// Reconciler reconciles BridgePolicies. It is safe for concurrent use.
type Reconciler struct {
	Client   client.Client
	Observer *observe.Observer
	Applier  *apply.Applier
	Status   *status.Writer
	Events   *notify.Recorder
	Clock    clock.PassiveClock
}

// Reconcile brings the children of one policy to what it wants, and its status
// to what is.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var policy v1alpha1.BridgePolicy
	if err := r.Client.Get(ctx, req.NamespacedName, &policy); err != nil {
		if apierrors.IsNotFound(err) {
			r.Applier.Forget(req.NamespacedName)
			r.Observer.Forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !policy.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // children go with the owner
	}
	world, err := r.Observer.Read(ctx, &policy)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading state of BridgePolicy: %w", err)
	}
	now := r.Clock.Now()
	next := plan.Next(world, now)
	applyErr := r.Applier.Do(ctx, &policy, next.Actions)
	after := statusOf(world, next, applyErr, now)
	statusErr := r.Status.Write(ctx, &policy, after)
	r.Events.Send(&policy, eventsOf(world, next, after, applyErr)...)
	wait, err := apply.Retry(errors.Join(applyErr, statusErr), next.Wait)
	return ctrl.Result{RequeueAfter: wait}, err
}
