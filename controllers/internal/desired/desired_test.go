package desired

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
	"github.com/causeway-dev/causeway/controllers/internal/golden"
)

func minimal() *v1alpha1.BridgePolicy {
	return &v1alpha1.BridgePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "chat", UID: "11111111-2222-3333-4444-555555555555"},
		Spec: v1alpha1.BridgePolicySpec{
			AccountPoolRef: v1alpha1.LocalObjectReference{Name: "team"},
			Clients:        v1alpha1.Clients{KeysSecretRef: &v1alpha1.LocalObjectReference{Name: "clients"}},
		},
	}
}

// full sets everything that has an effect on an object.
func full() *v1alpha1.BridgePolicy {
	p := minimal()
	p.Spec.Image = &v1alpha1.Image{
		Reference: "registry.example/causeway-proxy@sha256:0123", PullPolicy: corev1.PullAlways,
		PullSecrets: []v1alpha1.LocalObjectReference{{Name: "registry"}},
	}
	p.Spec.Replicas = ptr.To[int32](5)
	p.Spec.Resources = &v1alpha1.Resources{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000m")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
	}
	p.Spec.Pod = &v1alpha1.Pod{
		Labels:       map[string]string{"team": "agents"},
		Annotations:  map[string]string{"example.com/scrape": "yes"},
		NodeSelector: map[string]string{"disk": "ssd"},
		Tolerations:  []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists, TolerationSeconds: ptr.To[int64](0)}},
		Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname}},
		}},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
			MaxSkew: 2, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
		}},
		PriorityClassName:         "high",
		ServiceAccountAnnotations: map[string]string{"example.com/role": "reader"},
		SecurityProfile:           &v1alpha1.SecurityProfile{Type: v1alpha1.SecurityCustom, Custom: &v1alpha1.CustomSecurity{RunAsUser: ptr.To[int64](1000)}},
	}
	p.Spec.Service = &v1alpha1.Service{
		Type: v1alpha1.ServiceLoadBalancer, Port: ptr.To[int32](80),
		Annotations: map[string]string{"example.com/lb": "internal"}, LoadBalancerClass: "example.com/internal",
	}
	p.Spec.Rollout = &v1alpha1.Rollout{Type: v1alpha1.RolloutRollingUpdate}
	p.Spec.Drain = &v1alpha1.Drain{PodGraceSeconds: ptr.To[int32](600), PreStopSeconds: ptr.To[int32](0)}
	return p
}

func objects(p *v1alpha1.BridgePolicy) []any {
	f := effective.NewFleet(p, "localhost/causeway-proxy:release")
	blue, green := effective.Slot{Fleet: f, Slot: v1alpha1.SlotBlue}, effective.Slot{Fleet: f, Slot: v1alpha1.SlotGreen}
	documents := Documents{
		Bundle: []byte(`{"bundle":true}`), BundleHash: "0123456789abcdef",
		Credentials: []byte(`{"credentials":true}`), CredentialsHash: "fedcba9876543210",
		ChangedAt: "2026-01-02T03:04:05Z", Cause: CauseSpec,
	}
	return []any{
		ServiceAccount(f), Role(f), RoleBinding(f), ConfigMap(f, documents), CredentialsSecret(f, documents),
		Deployment(blue), Replicas(blue, f.Replicas), DisruptionBudget(blue, false),
		Service(Route{Active: blue}), SlotService(blue), SlotService(green),
	}
}

func TestObjectsAreGolden(t *testing.T) {
	for name, policy := range map[string]*v1alpha1.BridgePolicy{"minimal": minimal(), "full": full()} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			for _, o := range objects(policy) {
				raw, err := yaml.Marshal(o)
				if err != nil {
					t.Fatal(err)
				}
				out.WriteString("---\n" + string(raw))
			}
			golden.Compare(t, name+".golden.yaml", out.String())
		})
	}
}

// TestObjectsOfARolloutAreGolden: what only exists, or only looks so, while slots
// take turns, or with an autoscaler.
func TestObjectsOfARolloutAreGolden(t *testing.T) {
	p := minimal()
	p.Spec.Autoscaling = &v1alpha1.Autoscaling{MaxReplicas: 9, TargetCPUPercent: ptr.To[int32](60), TargetSessionsPerReplica: ptr.To[int32](200)}
	f := effective.NewFleet(p, "localhost/causeway-proxy:release")
	green := effective.Slot{Fleet: f, Slot: v1alpha1.SlotGreen}
	var out strings.Builder
	for _, o := range []any{
		Lease(f, v1alpha1.SlotGreen, 7, 30, "2026-01-02T03:04:05Z"),
		Service(Route{Active: green, Wide: true, PromotedAt: "2026-01-02T03:04:05Z"}),
		Preview(f, v1alpha1.SlotGreen), Preview(f, ""), DisruptionBudget(green, true), Autoscaler(green),
	} {
		raw, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n" + string(raw))
	}
	golden.Compare(t, "rollout.golden.yaml", out.String())
}

func TestEverySelectorIsTheOneOfTheSlot(t *testing.T) {
	policy := full()
	policy.Spec.Pod.Labels[v1alpha1.LabelSlot] = "green" // what the schema forbids must not break us either
	f := effective.NewFleet(policy, "image")
	for _, slot := range []v1alpha1.SlotName{v1alpha1.SlotBlue, v1alpha1.SlotGreen} {
		s := effective.Slot{Fleet: f, Slot: slot}
		d := Deployment(s)
		for what, got := range map[string]map[string]string{
			"Deployment":          d.Spec.Selector.MatchLabels,
			"PodDisruptionBudget": DisruptionBudget(s, true).Spec.Selector.MatchLabels,
			"Service":             Service(Route{Active: s}).Spec.Selector,
			"Service of the slot": SlotService(s).Spec.Selector,
		} {
			if !maps.Equal(got, s.Selector()) {
				t.Errorf("%s of %s selects %v, want %v", what, slot, got, s.Selector())
			}
		}
		for k, v := range s.Selector() {
			if d.Spec.Template.Labels[k] != v {
				t.Errorf("pods of %s have %s=%s, want %s", slot, k, d.Spec.Template.Labels[k], v)
			}
		}
	}
}

func TestProxiesGetNoVerbOnSecrets(t *testing.T) {
	for _, rule := range Role(effective.NewFleet(minimal(), "image")).Rules {
		for _, resource := range rule.Resources {
			if !strings.HasPrefix(resource, "bridgereplicas") && resource != "endpointslices" && resource != "leases" {
				t.Errorf("proxies may %v %s", rule.Verbs, resource)
			}
		}
	}
}

func TestReplicasIsNeverEmpty(t *testing.T) {
	f := effective.NewFleet(minimal(), "image")
	if got := Replicas(effective.Slot{Fleet: f, Slot: v1alpha1.SlotBlue}, 0).Spec.Replicas; got == nil || *got != 0 {
		t.Errorf("got %v, want 0 said aloud: an absent field would give its ownership up", got)
	}
}
