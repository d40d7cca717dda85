package packaging

import (
	"fmt"
	"net/http"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// TestPain17_ReportsHaveALevelOfTheirOwn: the API server names in each response the
// flow schema it has chosen.
func TestPain17_ReportsHaveALevelOfTheirOwn(t *testing.T) {
	text := kubectl(t, "", "kustomize", "config/default")
	kubectl(t, text, "apply", "--server-side", "-f", "-")
	t.Cleanup(func() { kubectl(t, text, "delete", "--wait", "--timeout=60s", "-f", "-") })
	established(t)
	var schema flowcontrolv1.FlowSchema
	must(t, admin.Get(t.Context(), client.ObjectKey{Name: "causeway-reports"}, &schema))

	report := &v1alpha1.BridgeReplica{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "chat-blue-0"},
		Spec:       v1alpha1.BridgeReplicaSpec{Policy: "chat", Slot: "blue", PodUID: "u"},
	}
	must(t, admin.Create(t.Context(), report))
	chosen := ""
	as := func(user string) client.Client {
		cfg := rest.CopyConfig(config)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				res, err := next.RoundTrip(req)
				if err == nil {
					chosen = res.Header.Get("X-Kubernetes-Pf-Flowschema-Uid")
				}
				return res, err
			})
		})
		c, err := client.New(cfg, client.Options{Scheme: scheme})
		must(t, err)
		return c
	}
	key := client.ObjectKeyFromObject(report)
	// A name that a user gave to the account of the proxies. What it may do is not the
	// question here.
	kubectl(t, "", "create", "clusterrolebinding", "whatever", "--clusterrole=cluster-admin", "--serviceaccount=default:whatever")
	proxy := as("system:serviceaccount:default:whatever")
	for name, c := range map[string]struct {
		call func() error
		ours bool
	}{
		"get of a report":    {func() error { return proxy.Get(t.Context(), key, report.DeepCopy()) }, true},
		"update of a report": {func() error { return proxy.Status().Update(t.Context(), report.DeepCopy()) }, true},
		"patch of a report": {func() error {
			return proxy.Status().Patch(t.Context(), report.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"status":{"epoch":1}}`)))
		}, true},
		"list of reports": {func() error { return proxy.List(t.Context(), &v1alpha1.BridgeReplicaList{}) }, false},
		"get of something": {func() error {
			return proxy.Get(t.Context(), client.ObjectKey{Name: "causeway-reports"}, &flowcontrolv1.FlowSchema{})
		}, false},
	} {
		eventually(t, name, func() error { // the server reads flow schemas from a cache
			if err := c.call(); err != nil {
				return err
			}
			if got := chosen == string(schema.UID); got != c.ours {
				return fmt.Errorf("in the level of reports: %v, want %v", got, c.ours)
			}
			return nil
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
