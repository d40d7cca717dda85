package credential

import (
	"context"
	"maps"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/wake"
)

// Wake says which accounts are looked at again when something changes. It reads
// the cache and changes nothing.
type Wake struct {
	Cache  client.Reader
	Finder wake.Finder
}

// Pools wakes all accounts of a pool.
func (w Wake) Pools() handler.TypedEventHandler[client.Object, Key] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []Key {
		pool, ok := o.(*v1alpha1.AccountPool)
		if !ok {
			return nil
		}
		return keysOf(pool, func(*v1alpha1.Account) bool { return true })
	})
}

// Secrets wakes the accounts whose login a Secret is, or was at the beginning.
func (w Wake) Secrets() handler.TypedEventHandler[client.Object, Key] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []Key {
		var keys []Key
		for _, name := range w.Finder.PoolsOfSecret(ctx, o) {
			var pool v1alpha1.AccountPool
			if err := w.Cache.Get(ctx, name, &pool); err != nil {
				continue // it is gone again
			}
			keys = append(keys, keysOf(&pool, func(a *v1alpha1.Account) bool {
				own := Key{NamespacedName: name, Account: a.Name}.secret().Name
				return a.OAuth.SeedSecretRef.Name == o.GetName() || own == o.GetName()
			})...)
		}
		return keys
	})
}

// Reports wakes the accounts whose token a proxy newly saw rejected. A turn waits
// for it, so it is not put off as other reports are.
func (w Wake) Reports() handler.TypedEventHandler[client.Object, Key] {
	wakeAll := func(ctx context.Context, o client.Object, was map[string]int64, q workqueue.TypedRateLimitingInterface[Key]) {
		replica, ok := o.(*v1alpha1.BridgeReplica)
		if !ok {
			return
		}
		is := rejections(replica)
		if len(is) == 0 || maps.Equal(is, was) {
			return
		}
		for _, pool := range w.Finder.PoolOf(ctx, o) {
			for account, generation := range is {
				if was[account] != generation {
					q.Add(Key{NamespacedName: pool, Account: account})
				}
			}
		}
	}
	return handler.TypedFuncs[client.Object, Key]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[client.Object], q workqueue.TypedRateLimitingInterface[Key]) {
			wakeAll(ctx, e.Object, nil, q)
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[client.Object], q workqueue.TypedRateLimitingInterface[Key]) {
			var was map[string]int64
			if before, ok := e.ObjectOld.(*v1alpha1.BridgeReplica); ok {
				was = rejections(before)
			}
			wakeAll(ctx, e.ObjectNew, was, q)
		},
	}
}

// Logger makes the logger of a reconcile, which names pool and account.
func Logger(base logr.Logger) func(*Key) logr.Logger {
	base = base.WithValues("controller", "credential")
	return func(key *Key) logr.Logger {
		if key == nil {
			return base
		}
		return base.WithValues("AccountPool", klog.KRef(key.Namespace, key.Name), "account", key.Account)
	}
}

func keysOf(pool *v1alpha1.AccountPool, which func(*v1alpha1.Account) bool) []Key {
	var keys []Key
	for i := range pool.Spec.Accounts {
		if a := &pool.Spec.Accounts[i]; a.OAuth != nil && which(a) {
			keys = append(keys, Key{NamespacedName: types.NamespacedName{Namespace: pool.Namespace, Name: pool.Name}, Account: a.Name})
		}
	}
	return keys
}
