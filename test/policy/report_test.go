package policy

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// TestAProxyReportsAboutItselfOnly: the name of the pod is not enough, because a pod of
// the same name may have come before it.
func TestAProxyReportsAboutItselfOnly(t *testing.T) {
	ns := namespace(t)
	proxies := account(t, ns, "chat-proxy", reports)
	operator := account(t, ns, "causeway-operator", reports, statuses)
	one, two := pod(t, ns, "chat-blue-1", proxies.Name), pod(t, ns, "chat-blue-2", proxies.Name)
	self := with(t, proxies, "chat-blue-1", one)

	report := func(name, uid string) *v1alpha1.BridgeReplica {
		r := &v1alpha1.BridgeReplica{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec:       v1alpha1.BridgeReplicaSpec{Policy: "chat", Slot: "blue", PodUID: uid},
		}
		must(t, admin.Create(t.Context(), r))
		return r
	}
	mine, theirs := report("chat-blue-1", string(one)), report("chat-blue-2", string(two))
	const name = "metadata.name must be the pod whose token writes the status, "

	for _, c := range []struct {
		name string
		by   client.Client
		of   *v1alpha1.BridgeReplica
		want string
	}{
		{"its own", self, mine, ""},
		{"another pod's", self, theirs, name + "which is chat-blue-1: a proxy reports about itself only"},
		{"with a token of no pod", with(t, proxies, "", ""), mine, name + "and this token is bound to none"},
		{"the operator", with(t, operator, "", ""), mine, ""},
		{"an administrator", admin, mine, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			changed := c.of.DeepCopy()
			changed.Status.Epoch = 3
			expect(t, c.by.Status().Update(t.Context(), changed.DeepCopy(), client.DryRunAll), c.want)
			patch := client.MergeFrom(c.of)
			expect(t, c.by.Status().Patch(t.Context(), changed, patch, client.DryRunAll), c.want)
		})
	}

	t.Run("that of an earlier pod of its name", func(t *testing.T) {
		must(t, admin.Delete(t.Context(), mine))
		earlier := report("chat-blue-1", "u-earlier")
		earlier.Status.Epoch = 3
		expect(t, self.Status().Update(t.Context(), earlier, client.DryRunAll),
			"spec.podUID must be the pod whose token writes the status, which is "+string(one)+": this object is of an earlier pod of the same name")
	})
}

// TestSpecOfAReportCannotBeChanged by anybody: it is a rule of the CRD.
func TestSpecOfAReportCannotBeChanged(t *testing.T) {
	r := &v1alpha1.BridgeReplica{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace(t), Name: "chat-blue-1"},
		Spec:       v1alpha1.BridgeReplicaSpec{Policy: "chat", Slot: "blue", PodUID: "u"},
	}
	must(t, admin.Create(t.Context(), r))
	r.Spec.PodUID = "v"
	expect(t, admin.Update(t.Context(), r, client.DryRunAll), "spec cannot be changed: the operator writes it once for each pod")
}
