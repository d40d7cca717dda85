// Package accountpool reconciles AccountPools. It makes no objects; all it
// writes is status.
package accountpool

import (
	"context"
	"fmt"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/apply"
	"github.com/causeway-dev/causeway/controllers/internal/notify"
	"github.com/causeway-dev/causeway/controllers/internal/observe"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
	"github.com/causeway-dev/causeway/controllers/internal/status"
)

// Reconciler reconciles AccountPools. It is safe for concurrent use.
type Reconciler struct {
	Client  client.Client
	Secrets *observe.Secrets
	Status  *status.Writer
	Events  *notify.Recorder
	Clock   clock.PassiveClock
}

// world is what was observed for one pool.
type world struct {
	pool     *v1alpha1.AccountPool
	policies []string
	// secrets holds the content of those that exist, by name; never to be logged.
	secrets map[string]map[string][]byte
	reports []reports.Report
}

// Reconcile writes the status of one pool.
func (r *Reconciler) Reconcile(ctx context.Context, pool *v1alpha1.AccountPool) (ctrl.Result, error) {
	if !pool.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	w, err := r.observe(ctx, pool)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading state of AccountPool: %w", err)
	}
	after, wait := statusOf(w, r.Clock.Now())
	err = r.Status.Write(ctx, pool, after)
	r.Events.Send(pool, eventsOf(pool, after)...)
	wait, err = apply.Retry(err, wait)
	return ctrl.Result{RequeueAfter: wait}, err
}

func (r *Reconciler) observe(ctx context.Context, pool *v1alpha1.AccountPool) (world, error) {
	w := world{pool: pool}
	var err error
	if w.secrets, err = r.Secrets.Read(ctx, pool.Namespace, observe.PoolSecrets(pool)); err != nil {
		return w, err
	}
	policies, err := observe.Policies(ctx, r.Client, pool.Namespace, observe.IndexPool, pool.Name)
	if err != nil {
		return w, err
	}
	for _, policy := range policies {
		w.policies = append(w.policies, policy.Name)
		list, err := observe.Reports(ctx, r.Client, policy)
		if err != nil {
			return w, err
		}
		w.reports = append(w.reports, list...)
	}
	return w, nil
}
