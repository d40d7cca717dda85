package wake

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// Delays by which reports of many proxies become one status write.
const (
	// FlipDelay is for what people and rollouts wait for.
	FlipDelay = 2 * time.Second
	// CounterDelay is for numbers that change all the time.
	CounterDelay = 30 * time.Second
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Reports makes a handler for BridgeReplicas that looks at keys again after a
// while. The earliest of several delays counts, so that a stream of counters
// never holds a flip back.
func Reports(keys Keys) handler.EventHandler {
	later := func(ctx context.Context, q queue, o client.Object, delay time.Duration) {
		for _, key := range keys(ctx, o) {
			q.AddAfter(reconcile.Request{NamespacedName: key}, delay)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { later(ctx, q, e.Object, FlipDelay) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { later(ctx, q, e.Object, FlipDelay) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, ok1 := e.ObjectOld.(*v1alpha1.BridgeReplica)
			after, ok2 := e.ObjectNew.(*v1alpha1.BridgeReplica)
			if !ok1 || !ok2 || equality.Semantic.DeepEqual(before.Status, after.Status) {
				return
			}
			delay := CounterDelay
			if Flipped(before.Status, after.Status) {
				delay = FlipDelay
			}
			later(ctx, q, after, delay)
		},
	}
}

// Flipped says whether two reports differ in more than numbers.
func Flipped(a, b v1alpha1.BridgeReplicaStatus) bool {
	return !equality.Semantic.DeepEqual(flips(a), flips(b))
}

// flips is a report without its numbers.
func flips(s v1alpha1.BridgeReplicaStatus) v1alpha1.BridgeReplicaStatus {
	out := v1alpha1.BridgeReplicaStatus{
		ObservedConfig: s.ObservedConfig, Build: s.Build, Role: s.Role, Epoch: s.Epoch, Circuits: s.Circuits,
	}
	for _, a := range s.Accounts {
		a.Inflight, a.Usage, a.Since, a.NextProbe = 0, nil, nil, nil
		if a.State == v1alpha1.AccountConditionUsable {
			a.Reason = "" // such as a limit that holds turns back for seconds
		}
		out.Accounts = append(out.Accounts, a)
	}
	if s.Sessions != nil && s.Sessions.Active == 0 && s.Sessions.Draining == 0 {
		out.Sessions = &v1alpha1.ReplicaSessions{} // drained to nothing is no mere number
	}
	if s.Quarantine != nil && s.Quarantine.Count > 0 {
		out.Quarantine = &v1alpha1.ReplicaQuarantine{Count: 1} // that there is one at all is none
	}
	if s.ReportedAt != nil {
		out.ReportSequence = 1 // the first report is no mere number either
	}
	return out
}
