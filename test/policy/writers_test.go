package policy

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// leases is what every writer of a test may do: rights are not what is tested.
var leases = rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"*"}}

// reports is the right of a proxy to report.
var reports = rbacv1.PolicyRule{
	APIGroups: []string{"causeway.dev"}, Resources: []string{"bridgereplicas", "bridgereplicas/status"},
	Verbs: []string{"get", "patch", "update"},
}

// statuses is the right by which the policies know the operator.
var statuses = rbacv1.PolicyRule{APIGroups: []string{"causeway.dev"}, Resources: []string{"bridgepolicies/status"}, Verbs: []string{"patch"}}

// account makes a service account with rights in its namespace.
func account(t *testing.T, ns, name string, rules ...rbacv1.PolicyRule) *corev1.ServiceAccount {
	t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	must(t, admin.Create(t.Context(), sa))
	grant(t, ns, name, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}, rules...)
	return sa
}

func grant(t *testing.T, ns, name string, to rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	must(t, admin.Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Rules: rules}))
	must(t, admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{to},
	}))
}

// pod makes a pod, which runs nowhere, and returns its UID.
func pod(t *testing.T, ns, name, serviceAccount string) types.UID {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.PodSpec{
			ServiceAccountName: serviceAccount,
			Containers:         []corev1.Container{{Name: "proxy", Image: "localhost/causeway-proxy:test"}},
		},
	}
	must(t, admin.Create(t.Context(), p))
	return p.UID
}

// with is a client with a token of a service account, as the kubelet mounts it into
// the pod; without a pod it is bound to none.
func with(t *testing.T, sa *corev1.ServiceAccount, podName string, uid types.UID) client.Client {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if podName != "" {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: podName, UID: uid}
	}
	must(t, admin.SubResource("token").Create(t.Context(), sa, request))
	cfg := rest.AnonymousClientConfig(config)
	cfg.BearerToken, cfg.QPS = request.Status.Token, -1
	return connect(t, cfg)
}

// person is a client of somebody who is no service account.
func person(t *testing.T, ns, name string, rules ...rbacv1.PolicyRule) client.Client {
	t.Helper()
	grant(t, ns, name, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}, rules...)
	cfg := rest.CopyConfig(config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	return connect(t, cfg)
}

func connect(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	must(t, err)
	return c
}
