package wake

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// SpecOrAnnotations lets changes of users through and our own status writes not.
func SpecOrAnnotations() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})
}

// PodFacts lets through what a plan or a status reads of a Pod.
func PodFacts() predicate.Predicate {
	return differs(func(o client.Object) any {
		pod, ok := o.(*corev1.Pod)
		if !ok {
			return o
		}
		facts := podFacts{Deleted: pod.DeletionTimestamp != nil, Phase: pod.Status.Phase,
			Mark: pod.Annotations[v1alpha1.AnnotationConfigHash], Labels: pod.Labels}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady || c.Type == corev1.PodScheduled {
				facts.Conditions = append(facts.Conditions, string(c.Type)+string(c.Status)+c.Reason)
			}
		}
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Waiting != nil {
				facts.Waiting = append(facts.Waiting, c.State.Waiting.Reason)
			}
		}
		return facts
	})
}

type podFacts struct {
	Deleted             bool
	Phase               corev1.PodPhase
	Mark                string
	Labels              map[string]string
	Conditions, Waiting []string
}

// DeploymentFacts lets through drift and what a status reads of a Deployment.
func DeploymentFacts() predicate.Predicate {
	return differs(func(o client.Object) any {
		d, ok := o.(*appsv1.Deployment)
		if !ok {
			return o
		}
		facts := deploymentFacts{Meta: metaOf(d), Observed: d.Status.ObservedGeneration,
			Replicas: d.Status.Replicas, Updated: d.Status.UpdatedReplicas}
		for _, c := range d.Status.Conditions {
			facts.Conditions = append(facts.Conditions, string(c.Type)+string(c.Status)+c.Reason)
		}
		return facts
	})
}

type deploymentFacts struct {
	Meta              meta
	Observed          int64
	Replicas, Updated int32
	Conditions        []string
}

// LeaseFacts lets through who has authority and who shall have it, and not that
// somebody renews it every few seconds.
func LeaseFacts() predicate.Predicate {
	return differs(func(o client.Object) any {
		l, ok := o.(*coordinationv1.Lease)
		if !ok {
			return o
		}
		return leaseFacts{Meta: meta{Labels: l.Labels, Annotations: l.Annotations, Owners: l.OwnerReferences}, Holder: l.Spec.HolderIdentity}
	})
}

type leaseFacts struct {
	Meta   meta
	Holder *string
}

// AutoscalerFacts lets through drift, and not what an autoscaler measures.
func AutoscalerFacts() predicate.Predicate {
	return differs(func(o client.Object) any {
		h, ok := o.(*autoscalingv2.HorizontalPodAutoscaler)
		if !ok {
			return o
		}
		// Its generation does not rise with its spec.
		return autoscalerFacts{Meta: meta{Labels: h.Labels, Owners: h.OwnerReferences}, Spec: h.Spec}
	})
}

type autoscalerFacts struct {
	Meta meta
	Spec autoscalingv2.HorizontalPodAutoscalerSpec
}

// Drift lets through changes of anything but status, for children with one.
func Drift() predicate.Predicate {
	return differs(func(o client.Object) any { return metaOf(o) })
}

type meta struct {
	Generation          int64
	Labels, Annotations map[string]string
	Owners              []metav1.OwnerReference
}

func metaOf(o client.Object) meta {
	return meta{o.GetGeneration(), o.GetLabels(), o.GetAnnotations(), o.GetOwnerReferences()}
}

// differs lets updates through that change the given facts.
func differs(facts func(client.Object) any) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(facts(e.ObjectOld), facts(e.ObjectNew))
	}}
}
