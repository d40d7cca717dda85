// Package controllers wires the controllers of the operator.
package controllers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/accountpool"
	"github.com/causeway-dev/causeway/controllers/bridgepolicy"
	"github.com/causeway-dev/causeway/controllers/bridgereplica"
	"github.com/causeway-dev/causeway/controllers/circuitpolicy"
	"github.com/causeway-dev/causeway/controllers/credential"
	"github.com/causeway-dev/causeway/controllers/internal/apply"
	"github.com/causeway-dev/causeway/controllers/internal/notify"
	"github.com/causeway-dev/causeway/controllers/internal/observe"
	"github.com/causeway-dev/causeway/controllers/internal/served"
	"github.com/causeway-dev/causeway/controllers/internal/status"
	"github.com/causeway-dev/causeway/controllers/internal/wake"
)

// Options of the controllers.
type Options struct {
	// ProxyImage is the image of bridges that name none.
	ProxyImage string
	// Health is where /healthz and /readyz are served; nil = nowhere.
	Health net.Listener
	// Clock is the real one when nil.
	Clock clock.PassiveClock
	// Concurrency is how many objects of a kind are reconciled at once; 0 = 4.
	Concurrency int
	// Logins keeps tokens that are not stored yet; whoever stops the manager waits
	// for it afterwards. One of its own when nil.
	Logins *credential.Keeper
	// Exchanger exchanges refresh tokens; credential.HTTP when nil.
	Exchanger credential.Exchanger
}

const (
	defaultConcurrency = 4
	// loginConcurrency is how many logins are refreshed at once. A refresh waits
	// for the issuer most of the time.
	loginConcurrency = 8
	// definitionsInterval is how often missing definitions are looked for.
	definitionsInterval = 5 * time.Second
)

// Setup adds all controllers and the readiness check to the manager, which must
// have been made with NewScheme and CacheOptions. The controllers start as soon
// as the API server serves our kinds as this version needs them; until then the
// operator is not ready and says why.
func Setup(mgr ctrl.Manager, o Options) error {
	if o.ProxyImage == "" {
		return errors.New("the image of the proxy is not set")
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Concurrency == 0 {
		o.Concurrency = defaultConcurrency
	}
	if o.Logins == nil {
		o.Logins = credential.NewKeeper()
	}
	if o.Exchanger == nil {
		o.Exchanger = credential.HTTP{}
	}
	// The starter polls in real time, whatever clock the controllers live by: an
	// answer kept by a clock that stands still would never be asked for again.
	checker, err := newChecker(mgr, clock.RealClock{})
	if err != nil {
		return err
	}
	if o.Health != nil {
		if err := addHealth(mgr, o.Health, checker); err != nil {
			return err
		}
	}
	s := setup{
		mgr: mgr, o: o, finder: wake.Finder{Cache: mgr.GetClient()},
		secrets: observe.NewSecrets(mgr.GetClient(), mgr.GetAPIReader()),
		status:  status.NewWriter(mgr.GetClient()),
		events:  notify.NewRecorder(mgr.GetEventRecorder("causeway-operator"), o.Clock),
	}
	if err := mgr.Add(starter{checker: checker, start: s.start}); err != nil {
		return fmt.Errorf("adding the controllers: %w", err)
	}
	return nil
}

// starter adds the controllers once their kinds are there. It runs in operators
// that wait for the Lease, too, so that their caches are warm.
type starter struct {
	checker *served.Checker
	start   func(context.Context) error
}

// NeedLeaderElection is false: the controllers it adds wait for the Lease themselves.
func (s starter) NeedLeaderElection() bool { return false }

// Start waits for the kinds, adds the controllers and returns.
func (s starter) Start(ctx context.Context) error {
	told := ""
	err := wait.PollUntilContextCancel(ctx, definitionsInterval, true, func(ctx context.Context) (bool, error) {
		err := s.checker.Check(ctx)
		if err != nil && err.Error() != told {
			told = err.Error()
			log.FromContext(ctx).Info("Waiting for custom resource definitions", "reason", told)
		}
		return err == nil, nil
	})
	if err != nil {
		return nil //nolint:nilerr // the operator is asked to end, which is no failure
	}
	return s.start(ctx)
}

// setup holds what the controllers share.
type setup struct {
	mgr     ctrl.Manager
	o       Options
	finder  wake.Finder
	secrets *observe.Secrets
	status  *status.Writer
	events  *notify.Recorder
}

// start adds indexes and controllers.
func (s setup) start(ctx context.Context) error {
	if err := observe.AddIndexes(ctx, s.mgr.GetFieldIndexer()); err != nil {
		return err
	}
	for _, controller := range []struct {
		kind string
		add  func() error
	}{
		{v1alpha1.KindAccountPool, s.accountPool}, {v1alpha1.KindCircuitPolicy, s.circuitPolicy},
		{v1alpha1.KindBridgePolicy, s.bridgePolicy}, {v1alpha1.KindBridgeReplica, s.bridgeReplica},
		{"logins", s.credential},
	} {
		if err := controller.add(); err != nil {
			return fmt.Errorf("adding the controller of %s: %w", controller.kind, err)
		}
	}
	return nil
}

func (s setup) options() controller.Options {
	return controller.Options{MaxConcurrentReconciles: s.o.Concurrency}
}

func (s setup) accountPool() error {
	r := &accountpool.Reconciler{
		Client: s.mgr.GetClient(), Secrets: s.secrets, Status: s.status, Events: s.events, Clock: s.o.Clock,
	}
	return ctrl.NewControllerManagedBy(s.mgr).WithOptions(s.options()).
		For(&v1alpha1.AccountPool{}, builder.WithPredicates(wake.SpecOrAnnotations())).
		Watches(&v1alpha1.BridgePolicy{}, wake.Map(s.finder.PoolOfPolicy), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.BridgeReplica{}, wake.Reports(s.finder.PoolOf)).
		Watches(&corev1.Pod{}, wake.Map(s.finder.PoolOf), builder.WithPredicates(wake.PodFacts())).
		WatchesMetadata(&corev1.Secret{}, wake.Map(s.finder.PoolsOfSecret)).
		Complete(reconcile.AsReconciler(s.mgr.GetClient(), r))
}

// credential has one request for each account, so that an issuer that hangs holds
// up nothing but what it is asked for.
func (s setup) credential() error {
	r := credential.New(credential.Options{
		Client: s.mgr.GetClient(), Live: s.mgr.GetAPIReader(), Secrets: s.secrets, Events: s.events, Clock: s.o.Clock,
		Exchanger: s.o.Exchanger, Keeper: s.o.Logins,
	})
	w := credential.Wake{Cache: s.mgr.GetClient(), Finder: s.finder}
	return builder.TypedControllerManagedBy[credential.Key](s.mgr).Named("credential").
		WithOptions(controller.TypedOptions[credential.Key]{MaxConcurrentReconciles: loginConcurrency}).
		WithLogConstructor(credential.Logger(s.mgr.GetLogger())).
		Watches(&v1alpha1.AccountPool{}, w.Pools(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(&corev1.Secret{}, w.Secrets()).
		Watches(&v1alpha1.BridgeReplica{}, w.Reports()).
		Complete(r)
}

func (s setup) circuitPolicy() error {
	r := &circuitpolicy.Reconciler{Client: s.mgr.GetClient(), Status: s.status, Clock: s.o.Clock}
	return ctrl.NewControllerManagedBy(s.mgr).WithOptions(s.options()).
		For(&v1alpha1.CircuitPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.BridgePolicy{}, wake.Map(s.finder.CircuitOfPolicy), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(reconcile.AsReconciler(s.mgr.GetClient(), r))
}

func (s setup) bridgePolicy() error {
	r := &bridgepolicy.Reconciler{
		Client:   s.mgr.GetClient(),
		Observer: observe.New(s.mgr.GetClient(), s.secrets, s.o.ProxyImage),
		Applier:  apply.New(s.mgr.GetClient(), s.mgr.GetAPIReader()),
		Status:   s.status, Events: s.events, Clock: s.o.Clock,
	}
	return ctrl.NewControllerManagedBy(s.mgr).WithOptions(s.options()).
		For(&v1alpha1.BridgePolicy{}, builder.WithPredicates(wake.SpecOrAnnotations())).
		Owns(&corev1.ConfigMap{}).
		Owns(&corev1.Secret{}, builder.OnlyMetadata).
		Owns(&corev1.ServiceAccount{}).
		Owns(&rbacv1.Role{}).
		Owns(&rbacv1.RoleBinding{}).
		Owns(&appsv1.Deployment{}, builder.WithPredicates(wake.DeploymentFacts())).
		Owns(&corev1.Service{}).
		Owns(&policyv1.PodDisruptionBudget{}, builder.WithPredicates(wake.Drift())).
		Owns(&coordinationv1.Lease{}, builder.WithPredicates(wake.LeaseFacts())).
		Owns(&autoscalingv2.HorizontalPodAutoscaler{}, builder.WithPredicates(wake.AutoscalerFacts())).
		Watches(&v1alpha1.AccountPool{}, wake.Map(s.finder.PoliciesOfPool), builder.WithPredicates(wake.SpecOrAnnotations())).
		Watches(&v1alpha1.CircuitPolicy{}, wake.Map(s.finder.PoliciesOfCircuit), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.BridgeReplica{}, wake.Reports(s.finder.PolicyOf)).
		Watches(&corev1.Pod{}, wake.Map(s.finder.PolicyOf), builder.WithPredicates(wake.PodFacts())).
		WatchesMetadata(&corev1.Secret{}, wake.Map(s.finder.PoliciesOfSecret)).
		Complete(r)
}

func (s setup) bridgeReplica() error {
	r := &bridgereplica.Reconciler{Client: s.mgr.GetClient()}
	ofPod := handler.EnqueueRequestForOwner(s.mgr.GetScheme(), s.mgr.GetRESTMapper(), &corev1.Pod{})
	return ctrl.NewControllerManagedBy(s.mgr).Named("bridgereplica").WithOptions(s.options()).
		For(&corev1.Pod{}, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&v1alpha1.BridgeReplica{}, ofPod, builder.WithPredicates(onlyGone())).
		Complete(reconcile.AsReconciler(s.mgr.GetClient(), r))
}

// onlyGone lets nothing through but deletions.
func onlyGone() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
}
