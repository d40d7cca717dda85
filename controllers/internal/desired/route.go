package desired

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
)

// This file is the only one that knows how traffic finds a slot.

// Route says where the Service of the clients leads.
type Route struct {
	Active effective.Slot
	// Wide leads to both slots, in one of which turns are held or relayed.
	Wide bool
	// PromotedAt is when the active slot became so; empty = it has not served yet.
	PromotedAt string
}

// Service is the one that clients use.
func Service(r Route) *corev1ac.ServiceApplyConfiguration {
	active := r.Active
	selector := active.Selector()
	if r.Wide {
		delete(selector, v1alpha1.LabelSlot) // server-side apply removes what is said no more
	}
	annotations := maps.Clone(active.ServiceAnnotations)
	if r.PromotedAt != "" {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[v1alpha1.AnnotationActiveSlot] = string(active.Slot)
		annotations[v1alpha1.AnnotationPromotedAt] = r.PromotedAt
	}
	spec := corev1ac.ServiceSpec().
		WithType(active.ServiceType).
		WithSelector(selector).
		// A turn that names its session finds it from any proxy. Others, such as an
		// SDK's chain of previous_response_id while the store is in memory, are known
		// only where they came before: what comes from one address stays on one proxy.
		WithSessionAffinity(corev1.ServiceAffinityClientIP).
		WithPorts(dataPort(active.ServicePort))
	if active.LoadBalancerClass != "" {
		spec.WithLoadBalancerClass(active.LoadBalancerClass)
	}
	return corev1ac.Service(active.Name, active.Namespace).
		WithLabels(active.Fleet.Labels()).WithAnnotations(annotations).
		WithOwnerReferences(owner(active.Fleet)).
		WithSpec(spec)
}

// SlotService always selects one slot, whichever is active.
func SlotService(s effective.Slot) *corev1ac.ServiceApplyConfiguration {
	return corev1ac.Service(s.ObjectName(), s.Namespace).
		WithLabels(s.Labels()).WithOwnerReferences(owner(s.Fleet)).
		WithSpec(corev1ac.ServiceSpec().
			WithType(corev1.ServiceTypeClusterIP).
			WithSelector(s.Selector()).
			WithPorts(dataPort(s.ServicePort)))
}

// noSlot is a slot that no pod has. A Service without a selector would keep the
// endpoints it had.
const noSlot v1alpha1.SlotName = "none"

// Preview leads to a candidate before it takes over; to nobody when the slot is empty.
func Preview(f effective.Fleet, slot v1alpha1.SlotName) *corev1ac.ServiceApplyConfiguration {
	if slot == "" {
		slot = noSlot
	}
	return corev1ac.Service(f.PreviewName(), f.Namespace).
		WithLabels(f.Labels()).WithOwnerReferences(owner(f)).
		WithSpec(corev1ac.ServiceSpec().
			WithType(corev1.ServiceTypeClusterIP).
			WithSelector(effective.Slot{Fleet: f, Slot: slot}.Selector()).
			WithPorts(dataPort(f.ServicePort)))
}

func dataPort(port int32) *corev1ac.ServicePortApplyConfiguration {
	return corev1ac.ServicePort().
		WithName(portData).WithProtocol(corev1.ProtocolTCP).WithAppProtocol("http").
		WithPort(port).WithTargetPort(intstr.FromString(portData))
}
