// Package effective turns a BridgePolicy into what its Kubernetes objects need:
// names computed, defaults applied, nothing left to decide for a builder. It is
// pure. Defaults that the proxies share are in api/effective.
package effective

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// defaultRequests reserve what an idle proxy with a few hundred sessions needs.
// There is no default limit: a proxy that is killed for memory cuts streams.
func defaultRequests() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("100m"),
		corev1.ResourceMemory: resource.MustParse("256Mi"),
	}
}

// Fleet is one BridgePolicy as its objects need it.
type Fleet struct {
	Namespace, Name string
	UID             types.UID

	Image       string
	PullPolicy  corev1.PullPolicy
	PullSecrets []string
	Resources   v1alpha1.Resources
	Pod         v1alpha1.Pod
	RunAsUser   int64
	FSGroup     int64

	// Replicas of the active slot; with Autoscaled only the number to begin with.
	Replicas   int32
	Autoscaled bool
	// MaxReplicas and the targets are the autoscaler's; a target of 0 is none.
	MaxReplicas              int32
	TargetCPUPercent         int32
	TargetSessionsPerReplica int32

	MaxSurge        intstr.IntOrString
	MaxUnavailable  intstr.IntOrString
	ProgressSeconds int32
	PreStopSeconds  int32
	PodGraceSeconds int32

	ServiceType        corev1.ServiceType
	ServicePort        int32
	ServiceAnnotations map[string]string
	LoadBalancerClass  string

	// Revision changes exactly when the pods must be made anew.
	Revision string
}

// NewFleet applies defaults. proxyImage is the image that the operator was
// released with.
func NewFleet(p *v1alpha1.BridgePolicy, proxyImage string) Fleet {
	settings := effective.SettingsOf(p)
	f := Fleet{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID,
		RunAsUser: settings.RunAsUser, FSGroup: settings.FSGroup,
		Replicas: settings.Replicas, Autoscaled: settings.Autoscaled,
		MaxReplicas: settings.MaxReplicas, TargetCPUPercent: settings.TargetCPUPercent,
		TargetSessionsPerReplica: settings.TargetSessionsPerReplica,
		MaxSurge:                 intstr.FromInt32(1), MaxUnavailable: intstr.FromInt32(0),
		ProgressSeconds: settings.ProgressSeconds,
		PreStopSeconds:  settings.PreStopSeconds,
		PodGraceSeconds: settings.PodGraceSeconds,
		ServiceType:     corev1.ServiceType(settings.ServiceType),
		ServicePort:     settings.ServicePort,
		Resources:       v1alpha1.Resources{Requests: defaultRequests()},
	}
	if p.Spec.Resources != nil {
		f.Resources = *p.Spec.Resources
	}
	if p.Spec.Pod != nil {
		f.Pod = *p.Spec.Pod
	}
	if v := p.Spec.Service; v != nil {
		f.ServiceAnnotations, f.LoadBalancerClass = v.Annotations, v.LoadBalancerClass
	}
	f.image(p.Spec.Image, settings.UpgradePolicy, proxyImage)
	if settings.RolloutType == v1alpha1.RolloutRollingUpdate {
		f.rolling(p.Spec.Rollout.RollingUpdate)
	}
	f.Revision = revision(f, p.Spec.Store, p.Annotations[v1alpha1.AnnotationRestartedAt])
	return f
}

func (f *Fleet) image(i *v1alpha1.Image, policy v1alpha1.UpgradePolicy, proxyImage string) {
	f.Image = proxyImage
	if i == nil {
		return
	}
	if policy == v1alpha1.UpgradePinned {
		f.Image = i.Reference
	}
	f.PullPolicy = i.PullPolicy
	for _, s := range i.PullSecrets {
		f.PullSecrets = append(f.PullSecrets, s.Name)
	}
}

// rolling takes the user's numbers for an update in place.
func (f *Fleet) rolling(r *v1alpha1.RollingUpdate) {
	f.MaxSurge = intstr.FromString("25%")
	if r != nil && r.MaxSurge != nil {
		f.MaxSurge = *r.MaxSurge
	}
	if r != nil && r.MaxUnavailable != nil {
		f.MaxUnavailable = *r.MaxUnavailable
	}
}

// Slot is one colour of a fleet.
type Slot struct {
	Fleet
	Slot v1alpha1.SlotName
}

// Names of the objects of a fleet.

// ConfigName is the ConfigMap with the bundle.
func (f Fleet) ConfigName() string { return f.Name + "-config" }

// CredentialsName is the Secret with the credentials document.
func (f Fleet) CredentialsName() string { return f.Name + "-credentials" }

// AccessName is the ServiceAccount, Role and RoleBinding of the proxies.
func (f Fleet) AccessName() string { return f.Name + "-proxy" }

// PreviewName is the Service of a candidate.
func (f Fleet) PreviewName() string { return f.Name + "-preview" }

// ServiceAccountName is the account the pods run under.
func (f Fleet) ServiceAccountName() string {
	if f.Pod.ServiceAccountName != "" {
		return f.Pod.ServiceAccountName
	}
	return f.AccessName()
}

// ObjectName is the Deployment, PodDisruptionBudget and Service of the slot.
func (s Slot) ObjectName() string { return s.Name + "-" + string(s.Slot) }

// Selector selects the pods of the slot. It is immutable in a Deployment, so
// only constant facts go in, and every selector comes from here.
func (s Slot) Selector() map[string]string {
	return map[string]string{
		v1alpha1.AppName:      AppNameProxy,
		v1alpha1.AppInstance:  s.Name,
		v1alpha1.AppComponent: v1alpha1.AppComponentProxy,
		v1alpha1.LabelSlot:    string(s.Slot),
	}
}

// AppNameProxy is the value of app.kubernetes.io/name on everything of a fleet.
const AppNameProxy = "causeway-proxy"

// Labels of the objects of the fleet that belong to no slot.
func (f Fleet) Labels() map[string]string {
	return map[string]string{
		v1alpha1.AppName:      AppNameProxy,
		v1alpha1.AppInstance:  f.Name,
		v1alpha1.AppComponent: v1alpha1.AppComponentProxy,
		v1alpha1.AppManagedBy: v1alpha1.AppManagedByValue,
		v1alpha1.AppPartOf:    v1alpha1.AppPartOfValue,
		v1alpha1.LabelPolicy:  f.Name,
	}
}

// Labels of the objects of the slot.
func (s Slot) Labels() map[string]string {
	labels := s.Fleet.Labels()
	labels[v1alpha1.LabelSlot] = string(s.Slot)
	return labels
}

// RolledOut says whether a Deployment runs nothing but its newest template.
func RolledOut(d *appsv1.Deployment) bool {
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	return d.Status.ObservedGeneration >= d.Generation &&
		d.Status.UpdatedReplicas == d.Status.Replicas && d.Status.UpdatedReplicas >= want
}
