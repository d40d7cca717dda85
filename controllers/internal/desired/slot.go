package desired

import (
	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
)

// historyLimit keeps the ReplicaSet before the current one, for a look back.
const historyLimit = 2

// Deployment is the fleet of one slot. Its replicas are another field owner's;
// see Replicas.
func Deployment(s effective.Slot) *appsv1ac.DeploymentApplyConfiguration {
	return appsv1ac.Deployment(s.ObjectName(), s.Namespace).
		WithLabels(s.Labels()).WithOwnerReferences(owner(s.Fleet)).
		WithAnnotations(revisionAnnotations(s)).
		WithSpec(appsv1ac.DeploymentSpec().
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(s.Selector())).
			WithRevisionHistoryLimit(historyLimit).
			WithProgressDeadlineSeconds(s.ProgressSeconds).
			WithStrategy(appsv1ac.DeploymentStrategy().
				WithType(appsv1.RollingUpdateDeploymentStrategyType).
				WithRollingUpdate(appsv1ac.RollingUpdateDeployment().
					WithMaxSurge(s.MaxSurge).WithMaxUnavailable(s.MaxUnavailable))).
			WithTemplate(podTemplate(s)))
}

// Replicas is the size of the slot and nothing else.
func Replicas(s effective.Slot, n int32) *appsv1ac.DeploymentApplyConfiguration {
	return appsv1ac.Deployment(s.ObjectName(), s.Namespace).
		WithSpec(appsv1ac.DeploymentSpec().WithReplicas(n))
}

// DisruptionBudget lets a drain of nodes take one proxy after the other, or none
// while they are held. Pods that do not serve anyway never hold a drain up.
func DisruptionBudget(s effective.Slot, held bool) *policyv1ac.PodDisruptionBudgetApplyConfiguration {
	var budget int32 = 1
	if held {
		budget = 0
	}
	return policyv1ac.PodDisruptionBudget(s.ObjectName(), s.Namespace).
		WithLabels(s.Labels()).WithOwnerReferences(owner(s.Fleet)).
		WithSpec(policyv1ac.PodDisruptionBudgetSpec().
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(s.Selector())).
			WithMaxUnavailable(intstr.FromInt32(budget)).
			WithUnhealthyPodEvictionPolicy(policyv1.AlwaysAllow))
}

func revisionAnnotations(s effective.Slot) map[string]string {
	return map[string]string{
		v1alpha1.AnnotationRevision:    s.Revision,
		v1alpha1.AnnotationHashVersion: effective.HashVersion,
	}
}
