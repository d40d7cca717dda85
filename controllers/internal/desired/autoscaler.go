package desired

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	autoscalingv2ac "k8s.io/client-go/applyconfigurations/autoscaling/v2"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/causeway-dev/causeway/controllers/internal/effective"
)

// sessionsMetric is what proxies publish about their sessions, by state.
const sessionsMetric = "causeway_proxy_sessions"

// Autoscaler scales the Deployment of a slot. It aims at the Deployment and not
// at the BridgePolicy, whose spec is the user's.
func Autoscaler(s effective.Slot) *autoscalingv2ac.HorizontalPodAutoscalerApplyConfiguration {
	spec := autoscalingv2ac.HorizontalPodAutoscalerSpec().
		WithScaleTargetRef(autoscalingv2ac.CrossVersionObjectReference().
			WithAPIVersion("apps/v1").WithKind("Deployment").WithName(s.ObjectName())).
		WithMinReplicas(s.Replicas).WithMaxReplicas(s.MaxReplicas)
	if s.TargetCPUPercent > 0 {
		spec.WithMetrics(autoscalingv2ac.MetricSpec().
			WithType(autoscalingv2.ResourceMetricSourceType).
			WithResource(autoscalingv2ac.ResourceMetricSource().
				WithName(corev1.ResourceCPU).
				WithTarget(autoscalingv2ac.MetricTarget().
					WithType(autoscalingv2.UtilizationMetricType).WithAverageUtilization(s.TargetCPUPercent))))
	}
	if s.TargetSessionsPerReplica > 0 {
		spec.WithMetrics(autoscalingv2ac.MetricSpec().
			WithType(autoscalingv2.PodsMetricSourceType).
			WithPods(autoscalingv2ac.PodsMetricSource().
				WithMetric(autoscalingv2ac.MetricIdentifier().WithName(sessionsMetric).
					WithSelector(metav1ac.LabelSelector().WithMatchLabels(map[string]string{"state": "active"}))).
				WithTarget(autoscalingv2ac.MetricTarget().
					WithType(autoscalingv2.AverageValueMetricType).
					WithAverageValue(*resource.NewQuantity(int64(s.TargetSessionsPerReplica), resource.DecimalSI)))))
	}
	return autoscalingv2ac.HorizontalPodAutoscaler(s.ObjectName(), s.Namespace).
		WithLabels(s.Labels()).WithOwnerReferences(owner(s.Fleet)).WithSpec(spec)
}
