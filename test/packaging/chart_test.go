package packaging

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// rulesOf are the rules of config/rbac/role.yaml.
func rulesOf(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "config", "rbac", "role.yaml"))
	must(t, err)
	var role rbacv1.ClusterRole
	must(t, yaml.UnmarshalStrict(raw, &role))
	return role.Rules
}

// TestPain11_TheOperatorHasRightsWhereItWorks and nowhere else: by default no object
// grants anything about Secrets for a whole cluster.
func TestPain11_TheOperatorHasRightsWhereItWorks(t *testing.T) {
	rules := rulesOf(t)
	for name, c := range map[string]struct {
		values []string
		want   []string
		arg    string
	}{
		"default": {nil, []string{system + "/causeway-operator"}, "--namespaces=" + system},
		"list": {
			[]string{"scope.namespaces={team-b,team-a}"},
			[]string{"team-a/causeway-operator", "team-b/causeway-operator"}, "--namespaces=team-a,team-b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			list := chart(t, c.values...)
			var roles []string
			for _, o := range list.of("Role") {
				if o.GetName() == "causeway-operator" {
					roles = append(roles, o.GetNamespace()+"/"+o.GetName())
					if diff := cmp.Diff(rules, as[rbacv1.Role](t, o).Rules); diff != "" {
						t.Errorf("Role differs from config/rbac/role.yaml:\n%s", diff)
					}
				}
			}
			if diff := cmp.Diff(c.want, roles); diff != "" {
				t.Errorf("Roles: -want +got\n%s", diff)
			}
			for _, o := range list.of("RoleBinding") {
				if s := as[rbacv1.RoleBinding](t, o).Subjects[0]; s.Namespace != system || s.Name != "causeway-operator" {
					t.Errorf("%s/%s binds %s/%s", o.GetNamespace(), o.GetName(), s.Namespace, s.Name)
				}
			}
			for _, o := range list.of("ClusterRole") {
				for _, r := range as[rbacv1.ClusterRole](t, o).Rules {
					if !slices.Equal(r.APIGroups, []string{"causeway.dev"}) {
						t.Errorf("ClusterRole %s grants %v of %v", o.GetName(), r.Verbs, r.Resources)
					}
				}
			}
			if n := len(list.of("ClusterRoleBinding")); n != 0 {
				t.Errorf("%d ClusterRoleBindings", n)
			}
			if args := operator(t, list).Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, c.arg) {
				t.Errorf("arguments %v do not hold %s", args, c.arg)
			}
		})
	}
}

func TestPain11_ClusterScopeIsAsked(t *testing.T) {
	list := chart(t, "scope.mode=Cluster")
	for _, o := range list.of("ClusterRole") {
		if o.GetName() == "causeway-operator" {
			if diff := cmp.Diff(rulesOf(t), as[rbacv1.ClusterRole](t, o).Rules); diff != "" {
				t.Errorf("ClusterRole differs from config/rbac/role.yaml:\n%s", diff)
			}
		}
	}
	if want := []string{"/causeway-operator"}; !slices.Equal(list.of("ClusterRoleBinding").names(), want) {
		t.Errorf("ClusterRoleBindings %v, want %v", list.of("ClusterRoleBinding").names(), want)
	}
	if want := []string{system + "/causeway-operator-leader-election"}; !slices.Equal(list.of("Role").names(), want) {
		t.Errorf("Roles %v, want %v", list.of("Role").names(), want)
	}
	for _, arg := range operator(t, list).Spec.Template.Spec.Containers[0].Args {
		if strings.HasPrefix(arg, "--namespaces") {
			t.Errorf("the operator is limited by %s", arg)
		}
	}
	if words := refused(t, "scope.mode=Cluster", "scope.namespaces={a}"); !strings.Contains(words, "remove the list, or set the mode to Namespaces") {
		t.Error(words)
	}
}

func operator(t *testing.T, list objects) *appsv1.Deployment {
	t.Helper()
	found := list.of("Deployment")
	if len(found) != 1 {
		t.Fatalf("%d Deployments", len(found))
	}
	return as[appsv1.Deployment](t, found[0])
}

// TestPain01_SelectorsDependOnNoValue: neither a label of a user nor the name of the
// release nor a version can make an upgrade impossible, or a Service empty.
func TestPain01_SelectorsDependOnNoValue(t *testing.T) {
	list := chart(t, "podLabels.team=a", "podAnnotations.b=c", "image.tag=v9", "replicas=3")
	other := parse(t, helm(t, "template", "another", "charts/causeway", "--namespace", "elsewhere"))
	want := map[string]string{"app.kubernetes.io/name": "causeway-operator"}
	for _, l := range []objects{list, other} {
		d := operator(t, l)
		if diff := cmp.Diff(want, d.Spec.Selector.MatchLabels); diff != "" {
			t.Errorf("Deployment: -want +got\n%s", diff)
		}
		for _, key := range []string{"helm.sh/chart", "app.kubernetes.io/version", "app.kubernetes.io/instance"} {
			if _, ok := d.Spec.Template.Labels[key]; ok {
				t.Errorf("pods have the label %s, so that they restart when it changes", key)
			}
		}
		for _, path := range [][]string{{"Service", "spec", "selector"}, {"NetworkPolicy", "spec", "podSelector", "matchLabels"},
			{"PodDisruptionBudget", "spec", "selector", "matchLabels"}} {
			for _, o := range l.of(path[0]) {
				if diff := cmp.Diff(want, textsAt(o.Object, path[1:]...)); diff != "" {
					t.Errorf("%s: -want +got\n%s", path[0], diff)
				}
			}
		}
	}
	if got := operator(t, list).Spec.Template.Labels["team"]; got != "a" {
		t.Errorf("label team of the pods is %q", got)
	}
	for _, label := range []string{`podLabels.app\.kubernetes\.io/name=mine`, `podLabels.causeway\.dev/slot=blue`} {
		if words := refused(t, label); !strings.Contains(words, "is reserved: selectors depend on labels of this prefix, choose another one") {
			t.Error(words)
		}
	}
}

func textsAt(v map[string]any, path ...string) map[string]string {
	for _, p := range path {
		v, _ = v[p].(map[string]any)
	}
	out := map[string]string{}
	for key, value := range v {
		out[key], _ = value.(string)
	}
	return out
}

// TestWhatIsAskedForIsThere, and what is not, is not.
func TestWhatIsAskedForIsThere(t *testing.T) {
	count := func(list objects, kind string) int { return len(list.of(kind)) }
	plain := chart(t)
	for _, kind := range []string{"PodDisruptionBudget", "ServiceMonitor", "PodMonitor"} {
		if count(plain, kind) != 0 {
			t.Errorf("a %s nobody asked for", kind)
		}
	}
	full := chart(t, "replicas=2", "metrics.serviceMonitor.enabled=true", "metrics.podMonitor.enabled=true",
		"metrics.serviceMonitor.labels.release=prometheus", "scope.namespaces={a,b}")
	for _, kind := range []string{"PodDisruptionBudget", "ServiceMonitor", "PodMonitor", "NetworkPolicy", "Service"} {
		if count(full, kind) != 1 {
			t.Errorf("%d of %s", count(full, kind), kind)
		}
	}
	if got := full.of("ServiceMonitor")[0].GetLabels()["release"]; got != "prometheus" {
		t.Errorf("label of the ServiceMonitor is %q", got)
	}
	monitor, _ := full.of("PodMonitor")[0].Object["spec"].(map[string]any)
	selected, _ := monitor["namespaceSelector"].(map[string]any)
	if diff := cmp.Diff(map[string]any{"matchNames": []any{"a", "b"}}, selected); diff != "" {
		t.Error(diff)
	}
	less := chart(t, "policies.enabled=false", "userRoles.enabled=false", "flowControl.enabled=false", "networkPolicy.enabled=false")
	for _, o := range less {
		if o.GetNamespace() == "" || o.GetKind() == "NetworkPolicy" {
			t.Errorf("%s %s was turned off", o.GetKind(), o.GetName())
		}
	}
	digest := "sha256:" + strings.Repeat("0", 64)
	d := operator(t, chart(t, "image.repository=registry.example.com/op", "image.digest="+digest, "proxyImage.tag=v2",
		"imagePullSecrets[0].name=registry", "logLevel=DEBUG", "env[0].name=HTTPS_PROXY", "env[0].value=http://proxy:3128"))
	container := d.Spec.Template.Spec.Containers[0]
	if want := "registry.example.com/op@" + digest; container.Image != want {
		t.Errorf("image %s, want %s", container.Image, want)
	}
	for _, arg := range []string{"--proxy-image=localhost/causeway-proxy:v2", "--log-level=DEBUG"} {
		if !slices.Contains(container.Args, arg) {
			t.Errorf("arguments %v do not hold %s", container.Args, arg)
		}
	}
	if n := len(container.Env); n != 2 || container.Env[0].Name != "GOMEMLIMIT" || container.Env[1].Name != "HTTPS_PROXY" {
		t.Errorf("environment %v", container.Env)
	}
	if len(d.Spec.Template.Spec.ImagePullSecrets) != 1 {
		t.Error("no pull secret")
	}
}

// open are the places of the schema where the API server judges, by their last name.
var open = []string{
	"global", "nodeAffinity", "podAffinity", "podAntiAffinity", "labelSelector", "podSelector", "namespaceSelector", "ipBlock", "ports[]", "to[]",
}

// TestTheSchemaIsClosed at every level: a misspelt value is an error, not a default.
func TestTheSchemaIsClosed(t *testing.T) {
	for _, name := range []string{"causeway", "causeway-crds"} {
		raw, err := os.ReadFile(filepath.Join(root, "charts", name, "values.schema.json"))
		must(t, err)
		var schema map[string]any
		must(t, json.Unmarshal(raw, &schema))
		closed(t, name, "", schema)
	}
	for value, words := range map[string]string{
		"replica=2":                               "replica",
		"scope.mod=Cluster":                       "mod",
		"scope.mode=Everything":                   "scope",
		"scope.namespaces={Team_A}":               "namespaces",
		"image.registry=example.com":              "registry",
		"image.digest=sha256:abc":                 "digest",
		"proxyImage.pullPolicy=Always":            "pullPolicy",
		"metrics.serviceMonitor.enable=true":      "enable",
		"networkPolicy.metricsFrom[0].pod=a":      "pod",
		"tolerations[0].keys=a":                   "keys",
		"policies.enabled=maybe":                  "enabled",
		"resources.request.cpu=1":                 "request",
		"replicas=two":                            "replicas",
		"topologySpreadConstraints[0].maxSkews=1": "maxSkews",
		"affinity.nodeAfinity.a=b":                "nodeAfinity",
	} {
		said := refused(t, value)
		if !strings.Contains(said, "values don't meet the specifications of the schema") || !strings.Contains(said, words) {
			t.Errorf("--set %s: Helm does not name %q:\n%s", value, words, said)
		}
	}
}

func closed(t *testing.T, chart, at string, v any) {
	t.Helper()
	schema, ok := v.(map[string]any)
	if !ok {
		return
	}
	if schema["type"] == "object" {
		if _, says := schema["additionalProperties"]; !says && !slices.Contains(open, at[strings.LastIndex(at, ".")+1:]) {
			t.Errorf("%s: %s is open", chart, at)
		}
	}
	for _, children := range []string{"properties", "definitions"} {
		list, _ := schema[children].(map[string]any)
		for name, child := range list {
			closed(t, chart, at+"."+name, child)
		}
	}
	if items, ok := schema["items"]; ok {
		closed(t, chart, at+"[]", items)
	}
}

// TestEveryValueIsInTheSchema and in values.yaml.
func TestEveryValueIsInTheSchema(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "charts", "causeway", "values.schema.json"))
	must(t, err)
	var schema struct{ Properties map[string]any }
	must(t, json.Unmarshal(raw, &schema))
	delete(schema.Properties, "global")
	raw, err = os.ReadFile(filepath.Join(root, "charts", "causeway", "values.yaml"))
	must(t, err)
	var values map[string]any
	must(t, yaml.UnmarshalStrict(raw, &values))
	for name := range schema.Properties {
		if _, ok := values[name]; !ok {
			t.Errorf("values.yaml does not say what %s is by default", name)
		}
	}
	if len(values) != len(schema.Properties) {
		t.Errorf("%d values, %d in the schema", len(values), len(schema.Properties))
	}
}

// TestPain08_CRDsFitIntoOneAnnotation of 256 KiB, which client-side apply writes, with
// what the chart adds. Helm's own release fits into a Secret.
func TestPain08_CRDsFitIntoOneAnnotation(t *testing.T) {
	list := parse(t, helm(t, "template", "causeway-crds", "charts/causeway-crds"))
	if len(list) != 4 {
		t.Errorf("%d objects, want 4 CRDs", len(list))
	}
	for _, o := range list {
		raw, err := json.Marshal(o.Object)
		must(t, err)
		if len(raw) > 100_000 {
			t.Errorf("%s has %d bytes", o.GetName(), len(raw))
		}
		if o.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s goes with the chart, and every pool and bridge with it", o.GetName())
		}
	}
}

// Nothing of ours has to answer before somebody else's write is taken: no webhook, and
// one version of each kind, so that nothing is converted. An operator that is down, or
// not there yet, stands in nobody's way.
func TestB98_NoWriteWaitsForUs(t *testing.T) {
	crds := parse(t, helm(t, "template", "crds", "charts/causeway-crds"))
	all := append(chart(t, "scope.mode=Cluster"), crds...)
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "APIService"} {
		if found := all.of(kind); len(found) > 0 {
			t.Errorf("%s: %v", kind, found.names())
		}
	}
	kinds := all.of("CustomResourceDefinition")
	if len(kinds) != 4 {
		t.Fatalf("%d kinds", len(kinds))
	}
	for _, o := range kinds {
		if strategy, _, _ := unstructured.NestedString(o.Object, "spec", "conversion", "strategy"); strategy != "" && strategy != "None" {
			t.Errorf("%s is converted by %s", o.GetName(), strategy)
		}
	}
}
