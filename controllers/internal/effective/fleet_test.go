package effective

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

func policy(change ...func(*v1alpha1.BridgePolicy)) *v1alpha1.BridgePolicy {
	p := &v1alpha1.BridgePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "chat"},
		Spec: v1alpha1.BridgePolicySpec{
			AccountPoolRef: v1alpha1.LocalObjectReference{Name: "team"},
			Clients:        v1alpha1.Clients{KeysSecretRef: &v1alpha1.LocalObjectReference{Name: "clients"}},
		},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

const image = "localhost/causeway-proxy:1"

// The values were written down when the algorithm was made. A release that
// changes one of them replaces every proxy of every user: raise HashVersion and
// stamp slots anew instead.
func TestRevisionsStayTheSameFromReleaseToRelease(t *testing.T) {
	full := policy(func(p *v1alpha1.BridgePolicy) {
		p.Spec.Image = &v1alpha1.Image{Reference: "registry.example/proxy:2", PullPolicy: corev1.PullAlways}
		p.Spec.Resources = &v1alpha1.Resources{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}
		p.Spec.Pod = &v1alpha1.Pod{Labels: map[string]string{"b": "2", "a": "1"}, PriorityClassName: "high"}
		p.Spec.Store = &v1alpha1.Store{Type: v1alpha1.StoreRedis, Redis: &v1alpha1.Redis{Addresses: []string{"redis:6379"}}}
	})
	for name, tc := range map[string]struct {
		policy *v1alpha1.BridgePolicy
		want   string
	}{
		"minimal": {policy(), "a2632d23cf57"},
		"full":    {full, "ffb6aa37b9bc"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NewFleet(tc.policy, image).Revision; got != tc.want {
				t.Errorf("got revision %s, want %s", got, tc.want)
			}
		})
	}
}

func TestWhatIsPartOfARevision(t *testing.T) {
	before := NewFleet(policy(), image).Revision
	for name, tc := range map[string]struct {
		change func(*v1alpha1.BridgePolicy)
		want   bool
	}{
		"image":         {func(p *v1alpha1.BridgePolicy) { p.Spec.Image = &v1alpha1.Image{Reference: "other"} }, true},
		"pod":           {func(p *v1alpha1.BridgePolicy) { p.Spec.Pod = &v1alpha1.Pod{PriorityClassName: "high"} }, true},
		"resources":     {func(p *v1alpha1.BridgePolicy) { p.Spec.Resources = &v1alpha1.Resources{} }, true},
		"pod grace":     {func(p *v1alpha1.BridgePolicy) { p.Spec.Drain = &v1alpha1.Drain{PodGraceSeconds: ptr.To[int32](901)} }, true},
		"restarted-at":  {func(p *v1alpha1.BridgePolicy) { p.Annotations = map[string]string{v1alpha1.AnnotationRestartedAt: "x"} }, true},
		"replicas":      {func(p *v1alpha1.BridgePolicy) { p.Spec.Replicas = ptr.To[int32](9) }, false},
		"pool":          {func(p *v1alpha1.BridgePolicy) { p.Spec.AccountPoolRef.Name = "other" }, false},
		"clients":       {func(p *v1alpha1.BridgePolicy) { p.Spec.Clients.Mode = v1alpha1.ClientsOpen }, false},
		"service":       {func(p *v1alpha1.BridgePolicy) { p.Spec.Service = &v1alpha1.Service{Port: ptr.To[int32](80)} }, false},
		"drain":         {func(p *v1alpha1.BridgePolicy) { p.Spec.Drain = &v1alpha1.Drain{SoftSeconds: ptr.To[int32](1)} }, false},
		"default store": {func(p *v1alpha1.BridgePolicy) { p.Spec.Store = &v1alpha1.Store{Type: v1alpha1.StoreMemory} }, false},
		"reset-circuits": {func(p *v1alpha1.BridgePolicy) {
			p.Annotations = map[string]string{v1alpha1.AnnotationResetCircuits: "x"}
		}, false},
		"other notes": {func(p *v1alpha1.BridgePolicy) { p.Annotations = map[string]string{"example.com/a": "b"} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NewFleet(policy(tc.change), image).Revision != before; got != tc.want {
				t.Errorf("changes the revision: got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestImageFollowsTheOperatorUnlessPinned(t *testing.T) {
	for name, tc := range map[string]struct {
		image *v1alpha1.Image
		want  string
	}{
		"no block":                  {nil, image},
		"pull policy alone":         {&v1alpha1.Image{PullPolicy: corev1.PullNever}, image},
		"reference":                 {&v1alpha1.Image{Reference: "mine"}, "mine"},
		"reference, Pinned":         {&v1alpha1.Image{Reference: "mine", UpgradePolicy: v1alpha1.UpgradePinned}, "mine"},
		"reference, FollowOperator": {&v1alpha1.Image{Reference: "mine", UpgradePolicy: v1alpha1.UpgradeFollowOperator}, image},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy(func(p *v1alpha1.BridgePolicy) { p.Spec.Image = tc.image })
			if got := NewFleet(p, image).Image; got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
