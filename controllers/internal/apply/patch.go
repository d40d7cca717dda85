package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	apieffective "github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/desired"
	"github.com/causeway-dev/causeway/controllers/internal/plan"
)

// This file holds the writes that are no apply configuration: notes that must
// vanish whoever owns them, and objects that belong to others but for one word.

// annotate sets annotations, or removes those that are nil. precondition is what
// of the metadata must be as it says.
func (a *Applier) annotate(ctx context.Context, o client.Object, owner string, precondition, annotations map[string]any) error {
	metadata := map[string]any{"annotations": annotations}
	for key, value := range precondition {
		metadata[key] = value
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	return a.client.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(owner))
}

// annotatePods annotates pods. One that is gone by now needs nothing.
func (a *Applier) annotatePods(ctx context.Context, pods []plan.PodRef, owner string, annotations map[string]any) error {
	for _, ref := range pods {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}}
		// A precondition: never another pod of that name.
		err := a.annotate(ctx, pod, owner, map[string]any{"uid": ref.UID}, annotations)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("marking Pod %s: %w", ref.Name, classify(err))
		}
	}
	return nil
}

func (a *Applier) hold(ctx context.Context, h plan.HoldPods) error {
	annotations := map[string]any{}
	for key, value := range plan.HeldBy() {
		if annotations[key] = nil; h.Hold {
			annotations[key] = value
		}
	}
	return a.annotatePods(ctx, h.Pods, v1alpha1.FieldOwnerRollout, annotations)
}

// mark writes the notes of a slot onto the Deployment that they were decided for.
func (a *Applier) mark(ctx context.Context, m plan.MarkSlot, v versions) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: m.Slot.Namespace, Name: m.Slot.ObjectName()}}
	key := deploymentKey(m.Slot)
	if v.of(key, m.Seen) == "" { // it was there after all, which only a cache of before did not show
		return fmt.Errorf("marking Deployment %s: %w", d.Name, errStale)
	}
	log.FromContext(ctx).Info("Marking Deployment", "Deployment", klog.KObj(d), "slot", m.Slot.Slot)
	precondition := map[string]any{"resourceVersion": v.of(key, m.Seen)}
	if err := a.annotate(ctx, d, v1alpha1.FieldOwnerRollout, precondition, m.Marks.Annotations()); err != nil {
		return refusal("Deployment", d.Name, "marking", err)
	}
	v[key] = d.ResourceVersion
	return nil
}

// createLease makes the Lease. From then on it is the proxies', but for the
// annotation by which a slot is asked to take over.
func (a *Applier) createLease(ctx context.Context, owner Owner, c plan.CreateLease) error {
	lease := desired.Lease(c.Fleet, c.Next, c.Epoch, c.Seconds, c.At)
	log.FromContext(ctx).Info("Creating Lease", "Lease", klog.KObj(lease), "slot", c.Next, "epoch", c.Epoch)
	err := a.client.Create(ctx, lease, client.FieldOwner(v1alpha1.FieldOwnerActivate))
	if !apierrors.IsAlreadyExists(err) {
		return refusal("Lease", lease.Name, "creating", err)
	}
	have := partial(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	if err := a.engine.live.Get(ctx, client.ObjectKeyFromObject(lease), have); err != nil {
		return fmt.Errorf("reading Lease %s: %w", lease.Name, err)
	}
	if err := checkOwner(owner, have); err != nil {
		return &Refusal{"Lease", lease.Name, err}
	}
	return fmt.Errorf("creating Lease %s: %w", lease.Name, errStale)
}

// requestHandover asks another slot to take over. It never names a holder: only
// a proxy can know that it may hold.
func (a *Applier) requestHandover(ctx context.Context, h plan.RequestHandover) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: h.Fleet.Namespace, Name: apieffective.ActivationLease(h.Fleet.Name)}}
	log.FromContext(ctx).Info("Requesting activation", "Lease", klog.KObj(lease), "slot", h.Next)
	err := a.annotate(ctx, lease, v1alpha1.FieldOwnerActivate,
		map[string]any{"resourceVersion": h.Seen}, map[string]any{v1alpha1.AnnotationNextHolder: h.Next})
	return refusal("Lease", lease.Name, "asking for another holder of", err)
}

func (a *Applier) dropAutoscaler(ctx context.Context, d plan.DropAutoscaler) error {
	h := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: d.Slot.Namespace, Name: d.Slot.ObjectName()}}
	err := client.IgnoreNotFound(a.client.Delete(ctx, h, client.Preconditions{UID: &d.UID}))
	return refusal("HorizontalPodAutoscaler", h.Name, "deleting", err)
}

// refusal words an error of a write; nil stays nil.
func refusal(kind, name, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s %s %s: %w", what, kind, name, errStale)
	}
	if refused := classify(err); errors.Is(refused, ErrForbidden) {
		return &Refusal{kind, name, refused}
	}
	return fmt.Errorf("%s %s %s: %w", what, kind, name, err)
}
