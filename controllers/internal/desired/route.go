package desired

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/causeway-dev/causeway/controllers/internal/effective"
)

// This file is the only one that knows how traffic finds a slot.

// Service is the one that clients use. It selects the given slot.
func Service(active effective.Slot) *corev1ac.ServiceApplyConfiguration {
	spec := corev1ac.ServiceSpec().
		WithType(active.ServiceType).
		WithSelector(active.Selector()).
		// A turn that names its session finds it from any proxy. Others, such as an
		// SDK's chain of previous_response_id while the store is in memory, are known
		// only where they came before: what comes from one address stays on one proxy.
		WithSessionAffinity(corev1.ServiceAffinityClientIP).
		WithPorts(dataPort(active.ServicePort))
	if active.LoadBalancerClass != "" {
		spec.WithLoadBalancerClass(active.LoadBalancerClass)
	}
	return corev1ac.Service(active.Name, active.Namespace).
		WithLabels(active.Fleet.Labels()).WithAnnotations(active.ServiceAnnotations).
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

func dataPort(port int32) *corev1ac.ServicePortApplyConfiguration {
	return corev1ac.ServicePort().
		WithName(portData).WithProtocol(corev1.ProtocolTCP).WithAppProtocol("http").
		WithPort(port).WithTargetPort(intstr.FromString(portData))
}
