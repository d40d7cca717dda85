package desired

import (
	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/causeway-dev/causeway/api/bundle"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
)

// Annotations of the ConfigMap that say how the configuration came about. They
// survive the status of the BridgePolicy.
const (
	// AnnotationChangedAt is when the content last changed, RFC 3339.
	AnnotationChangedAt = v1alpha1.Prefix + "changed-at"
	// AnnotationCause is what made it change, a Cause.
	AnnotationCause = v1alpha1.Prefix + "cause"
)

// Cause is what made a configuration change.
type Cause string

// Causes.
const (
	// CauseSpec is a new generation of the BridgePolicy itself.
	CauseSpec Cause = "Spec"
	// CauseReference is a change of a pool, a circuit policy or a Secret.
	CauseReference Cause = "Reference"
)

// Documents are the two files of a proxy, encoded, and how they came about.
type Documents struct {
	Bundle          []byte
	BundleHash      string
	Credentials     []byte
	CredentialsHash string
	ChangedAt       string
	Cause           Cause
}

// ConfigMap carries the bundle.
func ConfigMap(f effective.Fleet, d Documents) *corev1ac.ConfigMapApplyConfiguration {
	return corev1ac.ConfigMap(f.ConfigName(), f.Namespace).
		WithLabels(f.Labels()).WithOwnerReferences(owner(f)).
		WithAnnotations(map[string]string{
			v1alpha1.AnnotationConfigHash:      d.BundleHash,
			v1alpha1.AnnotationCredentialsHash: d.CredentialsHash,
			AnnotationChangedAt:                d.ChangedAt,
			AnnotationCause:                    string(d.Cause),
		}).
		WithData(map[string]string{bundle.FileName: string(d.Bundle)})
}

// CredentialsSecret carries the credentials document.
func CredentialsSecret(f effective.Fleet, d Documents) *corev1ac.SecretApplyConfiguration {
	return corev1ac.Secret(f.CredentialsName(), f.Namespace).
		WithLabels(f.Labels()).WithOwnerReferences(owner(f)).
		WithAnnotations(map[string]string{v1alpha1.AnnotationCredentialsHash: d.CredentialsHash}).
		WithType(corev1.SecretTypeOpaque).
		WithData(map[string][]byte{bundle.CredentialsFileName: d.Credentials})
}
