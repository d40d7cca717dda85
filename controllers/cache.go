package controllers

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// NewScheme returns a scheme with everything the operator reads and writes.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return scheme, nil
}

// CacheOptions bound what the operator holds in memory: of kinds that others
// use too, only the objects it made; of Secrets, only metadata; of everything,
// no managed fields. namespaces limits it further; empty = all.
func CacheOptions(namespaces []string) cache.Options {
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{v1alpha1.AppManagedBy: v1alpha1.AppManagedByValue})}
	pods := ours
	pods.Transform = slimPod
	secrets := &metav1.PartialObjectMetadata{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	o := cache.Options{
		ReaderFailOnMissingInformer: true, // an informer is a decision, not an accident
		DefaultTransform:            cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}:                      ours,
			&corev1.Service{}:                        ours,
			&corev1.ServiceAccount{}:                 ours,
			&corev1.Pod{}:                            pods,
			&rbacv1.Role{}:                           ours,
			&rbacv1.RoleBinding{}:                    ours,
			&appsv1.Deployment{}:                     ours,
			&policyv1.PodDisruptionBudget{}:          ours,
			&coordinationv1.Lease{}:                  ours,
			&autoscalingv2.HorizontalPodAutoscaler{}: ours,
			secrets:                                  {Transform: slimSecret},
		},
	}
	for _, namespace := range namespaces {
		if o.DefaultNamespaces == nil {
			o.DefaultNamespaces = map[string]cache.Config{}
		}
		o.DefaultNamespaces[namespace] = cache.Config{}
	}
	return o
}

// slimPod keeps what plans and statuses read of a Pod.
func slimPod(in any) (any, error) {
	pod, ok := in.(*corev1.Pod)
	if !ok {
		return in, nil
	}
	pod.ManagedFields = nil
	pod.Spec = corev1.PodSpec{}
	status := pod.Status
	pod.Status = corev1.PodStatus{Phase: status.Phase, Conditions: status.Conditions}
	for _, c := range status.ContainerStatuses {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Ready: c.Ready, State: c.State,
		})
	}
	return pod, nil
}

// slimSecret drops annotations of Secrets, of which one, written by kubectl
// apply, repeats the content; ours are kept.
func slimSecret(in any) (any, error) {
	meta, ok := in.(*metav1.PartialObjectMetadata)
	if !ok {
		return in, nil
	}
	meta.ManagedFields = nil
	if meta.Labels[v1alpha1.AppManagedBy] != v1alpha1.AppManagedByValue {
		meta.Annotations, meta.Labels = nil, nil
	}
	return meta, nil
}
