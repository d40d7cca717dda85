// Package bridgereplica makes one BridgeReplica for each proxy pod. The pod
// writes its status; the controllers of the parents read it.
package bridgereplica

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/apply"
)

// Reconciler reconciles Pods of proxies. It is safe for concurrent use.
type Reconciler struct {
	Client client.Client
}

// Reconcile makes the BridgeReplica of one pod. It goes with the pod, by its
// owner reference, whether the operator is there or not.
func (r *Reconciler) Reconcile(ctx context.Context, pod *corev1.Pod) (ctrl.Result, error) {
	wanted := replicaOf(pod)
	if wanted == nil {
		return ctrl.Result{}, nil
	}
	var have v1alpha1.BridgeReplica
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(wanted), &have)
	switch {
	case apierrors.IsNotFound(err):
		err = r.create(ctx, wanted)
	case err == nil && have.Spec.PodUID != wanted.Spec.PodUID && owned(&have):
		// Of an earlier pod of that name. Its deletion wakes us.
		err = client.IgnoreNotFound(r.Client.Delete(ctx, &have, client.Preconditions{UID: &have.UID}))
	}
	if err != nil {
		err = fmt.Errorf("making BridgeReplica %s: %w", wanted.Name, err)
	}
	wait, err := apply.Retry(err, 0)
	return ctrl.Result{RequeueAfter: wait}, err
}

func (r *Reconciler) create(ctx context.Context, wanted *v1alpha1.BridgeReplica) error {
	log.FromContext(ctx).V(1).Info("Creating BridgeReplica")
	err := r.Client.Create(ctx, wanted, client.FieldOwner(v1alpha1.FieldOwnerReplicaObjects))
	return client.IgnoreAlreadyExists(err) // the cache is behind our own write
}

// owned says whether the operator made it; somebody else's is left alone, and
// counts for nothing since its podUID fits no pod.
func owned(r *v1alpha1.BridgeReplica) bool {
	return r.Labels[v1alpha1.AppManagedBy] == v1alpha1.AppManagedByValue
}

// replicaOf is the BridgeReplica of a pod, or nil when the pod needs none.
func replicaOf(pod *corev1.Pod) *v1alpha1.BridgeReplica {
	policy, slot := pod.Labels[v1alpha1.LabelPolicy], v1alpha1.SlotName(pod.Labels[v1alpha1.LabelSlot])
	if !pod.DeletionTimestamp.IsZero() || policy == "" || slot != v1alpha1.SlotBlue && slot != v1alpha1.SlotGreen {
		return nil
	}
	labels := map[string]string{}
	for _, key := range []string{
		v1alpha1.AppName, v1alpha1.AppInstance, v1alpha1.AppComponent, v1alpha1.AppManagedBy,
		v1alpha1.AppPartOf, v1alpha1.LabelPolicy, v1alpha1.LabelSlot,
	} {
		if value := pod.Labels[key]; value != "" {
			labels[key] = value
		}
	}
	return &v1alpha1.BridgeReplica{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
			}},
		},
		Spec: v1alpha1.BridgeReplicaSpec{Policy: policy, Slot: slot, PodUID: string(pod.UID)},
	}
}
