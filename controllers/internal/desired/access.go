// Package desired builds the objects of a fleet as apply configurations. It is
// pure and cannot fail: what can be wrong was judged before.
package desired

import (
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"

	apieffective "github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
)

// owner makes an object go with its BridgePolicy. It does not block the
// deletion of the owner: that would need a right on its finalizers.
func owner(f effective.Fleet) *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().
		WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind(v1alpha1.KindBridgePolicy).
		WithName(f.Name).WithUID(f.UID).WithController(true).WithBlockOwnerDeletion(false)
}

// ServiceAccount is who the proxies are.
func ServiceAccount(f effective.Fleet) *corev1ac.ServiceAccountApplyConfiguration {
	return corev1ac.ServiceAccount(f.AccessName(), f.Namespace).
		WithLabels(f.Labels()).WithAnnotations(f.Pod.ServiceAccountAnnotations).
		WithOwnerReferences(owner(f)).
		WithAutomountServiceAccountToken(false) // the pods ask for it themselves
}

// Role is what the proxies may do: read their BridgeReplica and write its
// status, follow who the other proxies are, and take and renew the one Lease of
// their bridge. It holds no verb on Secrets; credentials reach them as a file.
func Role(f effective.Fleet) *rbacv1ac.RoleApplyConfiguration {
	return rbacv1ac.Role(f.AccessName(), f.Namespace).
		WithLabels(f.Labels()).WithOwnerReferences(owner(f)).
		WithRules(
			rbacv1ac.PolicyRule().WithAPIGroups(v1alpha1.GroupName).
				WithResources("bridgereplicas").WithVerbs("get"),
			rbacv1ac.PolicyRule().WithAPIGroups(v1alpha1.GroupName).
				WithResources("bridgereplicas/status").WithVerbs("patch", "update"),
			rbacv1ac.PolicyRule().WithAPIGroups("discovery.k8s.io").
				WithResources("endpointslices").WithVerbs("get", "list", "watch"),
			// list and watch by name alone: the proxies select on metadata.name.
			rbacv1ac.PolicyRule().WithAPIGroups("coordination.k8s.io").
				WithResources("leases").WithResourceNames(apieffective.ActivationLease(f.Name)).
				WithVerbs("get", "list", "watch", "update", "patch"),
		)
}

// RoleBinding gives the Role to the account the pods run under.
func RoleBinding(f effective.Fleet) *rbacv1ac.RoleBindingApplyConfiguration {
	return rbacv1ac.RoleBinding(f.AccessName(), f.Namespace).
		WithLabels(f.Labels()).WithOwnerReferences(owner(f)).
		WithRoleRef(rbacv1ac.RoleRef().
			WithAPIGroup("rbac.authorization.k8s.io").WithKind("Role").WithName(f.AccessName())).
		WithSubjects(rbacv1ac.Subject().
			WithKind("ServiceAccount").WithName(f.ServiceAccountName()).WithNamespace(f.Namespace))
}
