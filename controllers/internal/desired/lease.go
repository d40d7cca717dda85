package desired

import (
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apieffective "github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
)

// Lease is the activation Lease as it is created. It is no apply configuration:
// once it is there, all but the annotation that asks for a holder belongs to the
// proxies.
func Lease(f effective.Fleet, next v1alpha1.SlotName, epoch int64, seconds int32, at string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.Namespace, Name: apieffective.ActivationLease(f.Name), Labels: f.Labels(),
			Annotations: map[string]string{
				v1alpha1.AnnotationEpoch:      strconv.FormatInt(epoch, 10),
				v1alpha1.AnnotationNextHolder: string(next),
				v1alpha1.AnnotationStartedAt:  at,
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindBridgePolicy, Name: f.Name, UID: f.UID,
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(false),
			}},
		},
		Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds},
	}
}
