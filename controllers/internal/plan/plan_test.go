package plan

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/causeway-dev/causeway/api/bundle"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/golden"
)

func TestLifeOfABridgeIsGolden(t *testing.T) {
	f := newFake(t)
	pool := f.w.Pool
	f.w.Pool = nil
	f.step("the pool is missing")
	f.w.Pool = pool
	f.step("the pool is there")
	f.step("looked again")
	f.pods(2)
	f.step("two pods are ready")
	f.pass(5 * time.Second)
	f.acknowledge(v1alpha1.ConfigApplied, "", 0)
	f.step("the first one reports")
	f.acknowledge(v1alpha1.ConfigApplied, "", 1)
	f.step("both report")
	f.pass(10 * time.Minute)
	f.step("ten minutes later")
	f.w.Secrets["keys"]["a"] = []byte("sk-two")
	f.step("a key was rotated")
	f.pass(30 * time.Second)
	f.w.Secrets["keys"]["a"] = []byte("sk-three")
	f.step("and again, before all answered")
	f.pass(30 * time.Second)
	f.step("a minute after the first rotation")
	f.acknowledge(v1alpha1.ConfigApplied, "", 0, 1)
	f.step("both serve it")
	f.w.Policy.Generation++
	f.w.Policy.Spec.Drain = &v1alpha1.Drain{SoftSeconds: ptr.To[int32](60)}
	f.step("the policy changes what proxies do")
	f.acknowledge(v1alpha1.ConfigRejected, "VersionSkew", 0)
	f.step("one proxy refuses")
	f.acknowledge(v1alpha1.ConfigApplied, "", 0, 1)
	f.step("both serve it")
	f.w.Policy.Generation++
	f.w.Policy.Spec.Replicas = ptr.To[int32](3)
	f.step("the policy changes nothing for proxies")
	f.w.Policy.Generation++
	f.w.Policy.Spec.Drain = &v1alpha1.Drain{PodGraceSeconds: ptr.To[int32](60)}
	f.step("the policy breaks an invariant")
	f.w.Policy.Generation++
	f.w.Policy.Spec.Drain = nil
	f.w.Policy.Spec.Management = v1alpha1.ManagementPaused
	f.step("paused, and moved on")
	f.w.Policy.Spec.Management = v1alpha1.ManagementActive
	f.step("active again")
	f.acknowledge(v1alpha1.ConfigApplied, "", 0, 1)
	f.step("both serve it")
	reset := func(value string) {
		f.w.Policy.Annotations = map[string]string{v1alpha1.AnnotationResetCircuits: value}
	}
	reset("once")
	f.step("circuits are reset by hand")
	f.pass(30 * time.Second)
	f.acknowledge(v1alpha1.ConfigApplied, "", 0, 1)
	f.step("both serve it")
	f.pass(time.Hour)
	f.step("the annotation is an hour old")
	reset("not a token")
	f.step("the annotation cannot be used")
	golden.Compare(t, "life.golden.txt", f.log.String())
}

func TestPlansDoNotChangeTheirWorld(t *testing.T) {
	f := served(t)
	before := f.w.Policy.DeepCopy()
	first, second := Next(f.w, f.now), Next(f.w, f.now)
	if len(first.Actions) != len(second.Actions) || first.ConfigHash() != second.ConfigHash() || first.ConfigHash() == "" {
		t.Errorf("the same world gave %d and %d actions, config %q and %q",
			len(first.Actions), len(second.Actions), first.ConfigHash(), second.ConfigHash())
	}
	if before.Generation != f.w.Policy.Generation {
		t.Error("the policy was changed")
	}
}

func TestWhatIsNotResolvedKeepsWhatIsStored(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil      func(f *fake)
		wantReason string
		wantWrite  bool
	}{
		"pool gone":         {func(f *fake) { f.w.Pool = nil }, v1alpha1.ReasonAccountPoolNotFound, false},
		"pool not accepted": {func(f *fake) { f.w.Pool.Spec.Provider.Type = "Martian" }, v1alpha1.ReasonAccountPoolNotAccepted, false},
		"circuit policy gone": {func(f *fake) {
			f.w.Policy.Spec.CircuitPolicyRef = &v1alpha1.LocalObjectReference{Name: "nowhere"}
		}, v1alpha1.ReasonCircuitPolicyNotFound, false},
		"a Secret gone": {func(f *fake) { delete(f.w.Secrets, "keys") }, v1alpha1.ReasonSecretNotFound, true},
		"a key gone":    {func(f *fake) { f.w.Secrets["keys"] = map[string][]byte{"b": []byte("sk")} }, v1alpha1.ReasonKeyNotFound, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := served(t)
			tc.spoil(f)
			p := Next(f.w, f.now)
			if p.Refs.OK || p.Refs.Reason != tc.wantReason {
				t.Errorf("got refs %+v, want %s", p.Refs, tc.wantReason)
			}
			write, slot := false, false
			for _, action := range p.Actions {
				switch action.(type) {
				case WriteConfig:
					write = true
				case ApplySlot:
					slot = true
				}
			}
			if write != tc.wantWrite || !slot {
				t.Errorf("got write %v, slot %v, want %v and a slot that is kept up", write, slot, tc.wantWrite)
			}
		})
	}
}

func TestAResetOfCircuitsReachesTheProxiesAndNoTemplate(t *testing.T) {
	f := served(t)
	before := f.step("served")
	f.w.Policy.Annotations = map[string]string{v1alpha1.AnnotationResetCircuits: "2026-03-01T12:00:00Z"}
	p := f.step("reset")
	stored, err := bundle.Decode([]byte(f.w.Config.Data[bundle.FileName]))
	if err != nil {
		t.Fatal(err)
	}
	if stored.ResetCircuits != "2026-03-01T12:00:00Z" || p.BundleHash == before.BundleHash || stored.Hash != p.BundleHash {
		t.Errorf("proxies are told %q under hash %s (before: %s), want the annotation under a new hash",
			stored.ResetCircuits, stored.Hash, before.BundleHash)
	}
	if p.Fleet.Revision != before.Fleet.Revision {
		t.Error("the pods would be replaced")
	}
	f.w.Policy.Annotations[v1alpha1.AnnotationResetCircuits] = "not a token"
	if p = f.step("not a token"); !p.Accepted.OK || p.BundleHash != before.BundleHash {
		t.Errorf("accepted %v, hash %s, want an accepted policy without a reset (%s)", p.Accepted.OK, p.BundleHash, before.BundleHash)
	}
	if last := p.Warnings[len(p.Warnings)-1]; last.Reason != v1alpha1.ReasonInvalidAnnotation {
		t.Errorf("the last warning is %+v, want one about the annotation", last)
	}
}

func TestTheLastAcceptedCircuitPolicyStaysInForce(t *testing.T) {
	f := newFake(t)
	f.w.Policy.Spec.CircuitPolicyRef = &v1alpha1.LocalObjectReference{Name: "patient"}
	f.w.Circuit = &v1alpha1.CircuitPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "patient"},
		Spec: v1alpha1.CircuitPolicySpec{Deadlines: &v1alpha1.Deadlines{IdleSeconds: ptr.To[int32](444)}}}
	f.step("accepted")
	f.w.Circuit.Spec.Deadlines = &v1alpha1.Deadlines{IdleSeconds: ptr.To[int32](5)} // below the default keepalive
	f.w.Secrets["keys"]["a"] = []byte("sk-rotated")
	p := f.step("not accepted, and a key was rotated")

	stored, err := bundle.Decode([]byte(f.w.Config.Data[bundle.FileName]))
	if err != nil {
		t.Fatal(err)
	}
	if stored.Circuit.Deadlines.IdleSeconds != 444 || p.Refs.Reason != v1alpha1.ReasonCircuitPolicyNotAccepted {
		t.Errorf("got idle %d and refs %s, want 444 and CircuitPolicyNotAccepted", stored.Circuit.Deadlines.IdleSeconds, p.Refs.Reason)
	}
	if !strings.Contains(f.log.String(), "WriteConfig") || p.CredentialsHash == "" {
		t.Error("the rotated key must reach the proxies all the same")
	}
}

func TestAcknowledgement(t *testing.T) {
	for name, tc := range map[string]struct {
		arrange    func(f *fake)
		wantStatus metav1.ConditionStatus
		wantReason string
	}{
		"nobody is ready": {func(f *fake) { f.w.Reports = nil }, "Unknown", v1alpha1.ReasonNoReports},
		"nobody reports": {func(f *fake) {
			for _, r := range f.w.Reports {
				r.Replica.Status = v1alpha1.BridgeReplicaStatus{}
			}
		}, "Unknown", v1alpha1.ReasonNoReports},
		"one is silent":           {func(f *fake) { f.w.Reports[0].Replica.Status = v1alpha1.BridgeReplicaStatus{} }, "True", v1alpha1.ReasonConfigAcknowledged},
		"an old answer stays one": {func(f *fake) { f.pass(24 * time.Hour) }, "True", v1alpha1.ReasonConfigAcknowledged},
		"one is behind after a new generation": {func(f *fake) {
			f.w.Policy.Generation++
			f.w.Policy.Spec.Drain = &v1alpha1.Drain{SoftSeconds: ptr.To[int32](1)}
		}, "False", v1alpha1.ReasonConfigPending},
		"one is behind after a rotation": {func(f *fake) { f.w.Secrets["keys"]["a"] = []byte("sk-x") }, "True", v1alpha1.ReasonConfigAcknowledged},
		"an unready pod is not asked": {func(f *fake) {
			f.w.Reports[0].Pod.Status.Conditions = nil
			f.w.Reports[0].Replica.Status.ObservedConfig.Hash = "old"
		}, "True", v1alpha1.ReasonConfigAcknowledged},
		"both hashes in one word": {func(f *fake) {
			for _, r := range f.w.Reports {
				o := r.Replica.Status.ObservedConfig
				o.Hash, o.CredentialsHash = o.Hash+"."+o.CredentialsHash, ""
			}
		}, "True", v1alpha1.ReasonConfigAcknowledged},
		"an unreadable file is refused": {func(f *fake) {
			f.w.Reports[0].Replica.Status.ObservedConfig = &v1alpha1.ObservedConfig{State: v1alpha1.ConfigRejected, Reason: "Unreadable"}
		}, "False", v1alpha1.ReasonConfigRejected},
		"no proxy is wanted": {func(f *fake) {
			f.w.Policy.Spec.Replicas = ptr.To[int32](0)
			f.w.Reports = nil
		}, "True", v1alpha1.ReasonConfigAcknowledged},
	} {
		t.Run(name, func(t *testing.T) {
			f := served(t)
			tc.arrange(f)
			got := Next(f.w, f.now).Programmed
			if got.Status != tc.wantStatus || got.Reason != tc.wantReason {
				t.Errorf("got %s/%s, want %s/%s", got.Status, got.Reason, tc.wantStatus, tc.wantReason)
			}
		})
	}
}

func TestAnAutoscalerIsGivenANumberToBeginWithAndNoMore(t *testing.T) {
	f := newFake(t)
	f.w.Policy.Spec.Autoscaling = &v1alpha1.Autoscaling{MinReplicas: ptr.To[int32](3), MaxReplicas: 9}
	f.step("created")
	if log := f.log.String(); !strings.Contains(log, "ScaleSlot blue 3") {
		t.Errorf("the slot must begin with minReplicas:\n%s", log)
	}
	f.log.Reset()
	f.step("looked again")
	if log := f.log.String(); strings.Contains(log, "ScaleSlot") {
		t.Errorf("replicas belong to the autoscaler:\n%s", log)
	}
}
