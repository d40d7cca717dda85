package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// T34, B82: one upgrade, with streams that go on.
func TestT34AnUpgradeHandsOver(t *testing.T) {
	f := begin(t)
	f.streams["blue"] = 2
	var blue appsv1.Deployment
	f.get(&blue, samplePolicy+"-blue")
	f.image("localhost/causeway-proxy:2")
	p := f.until("the drain of blue", time.Second, step(v1alpha1.StepDraining, "green"))
	if p.Status.Activation.Slot != "green" || p.Status.Activation.Epoch != 2 || p.Status.Slots[0].Name == "" {
		t.Errorf("activation is %+v", p.Status.Activation)
	}
	if len(p.Status.Slots) != 2 {
		t.Errorf("slots are %+v", p.Status.Slots)
	}
	if got := strings.Join(f.seen, ","); got != "blue,both,green" {
		t.Errorf("clients were led to %s, want blue, both, green", got)
	}
	f.eventually("pods that are held", func(ctx context.Context) error {
		var pdb policyv1.PodDisruptionBudget
		if err := f.client.Get(ctx, f.key(samplePolicy+"-blue"), &pdb); err != nil {
			return err
		}
		var pod corev1.Pod
		if err := f.client.Get(ctx, f.key(samplePolicy+"-blue-0"), &pod); err != nil {
			return err
		}
		if pdb.Spec.MaxUnavailable.IntValue() != 0 || pod.Annotations["karpenter.sh/do-not-disrupt"] != "true" {
			return fmt.Errorf("budget %v, annotations %v", pdb.Spec.MaxUnavailable, pod.Annotations)
		}
		return nil
	})
	var after appsv1.Deployment
	f.get(&after, samplePolicy+"-blue")
	if after.Spec.Template.Spec.Containers[0].Image != proxyImage || *after.Spec.Replicas != 2 {
		t.Errorf("blue was edited: image %s, %d replicas", after.Spec.Template.Spec.Containers[0].Image, *after.Spec.Replicas)
	}
	f.streams["blue"] = 0
	f.until("blue is kept for a roll-back", time.Second, step(v1alpha1.StepRetained, "green"))
	p = f.until("the end", 5*time.Minute, func(p *v1alpha1.BridgePolicy) error {
		var d appsv1.Deployment
		f.get(&d, samplePolicy+"-blue")
		if *d.Spec.Replicas != 0 {
			return errors.New("blue has replicas")
		}
		return step(v1alpha1.StepIdle, "green")(p)
	})
	if len(p.Status.History) != 2 || p.Status.History[0].Image != "localhost/causeway-proxy:2" {
		t.Errorf("history is %+v", p.Status.History)
	}
	for _, reason := range []string{v1alpha1.EventCandidateReady, v1alpha1.EventActivationRequested, v1alpha1.EventActivationAcquired,
		v1alpha1.EventPromoted, v1alpha1.EventDrainStarted, v1alpha1.EventDrainCompleted} {
		f.event(reason, samplePolicy)
	}
	// The next one goes the other way.
	f.image("localhost/causeway-proxy:3")
	f.until("the way back to blue", time.Second, step(v1alpha1.StepRetained, "blue"))
}

// T37: a candidate that never becomes ready changes nothing for users.
func TestT37ACandidateThatNeverBecomesReadyIsGivenUp(t *testing.T) {
	f := begin(t)
	f.broken = "localhost/broken:1"
	f.image(f.broken)
	p := f.until("the end of the rollout", 30*time.Second, func(p *v1alpha1.BridgePolicy) error {
		if p.Status.Rollout.LastFailedRevision == "" {
			return errors.New("nothing has failed")
		}
		return step(v1alpha1.StepIdle, "blue")(p)
	})
	f.condition(p, samplePolicy, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonProgressDeadlineExceeded)
	f.condition(p, samplePolicy, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonRolloutFailed)
	f.condition(p, samplePolicy, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	f.event(v1alpha1.EventRolloutStalled, samplePolicy)
	var green appsv1.Deployment
	f.get(&green, samplePolicy+"-green")
	if *green.Spec.Replicas != 0 {
		t.Errorf("green has %d replicas", *green.Spec.Replicas)
	}
	if got := strings.Join(f.seen, ","); got != "blue" {
		t.Errorf("clients were led to %s", got)
	}
	f.image("localhost/causeway-proxy:2")
	f.until("a good image", time.Second, step(v1alpha1.StepRetained, "green"))
}

// T37: a candidate that does not take over gives way within a minute.
func TestT37ACandidateThatDoesNotTakeOverGivesWay(t *testing.T) {
	f := begin(t)
	f.mute = true
	f.image("localhost/causeway-proxy:2")
	f.until("the hand-over", time.Second, step(v1alpha1.StepHandover, "blue"))
	asked := f.clock.Now()
	f.until("authority for blue", time.Second, func(*v1alpha1.BridgePolicy) error {
		var l coordinationv1.Lease
		f.get(&l, samplePolicy+"-activation")
		if l.Annotations[v1alpha1.AnnotationNextHolder] != "blue" {
			return errors.New("green is asked")
		}
		return nil
	})
	if took := f.clock.Now().Sub(asked); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	f.mute = false
	p := f.until("blue serves", time.Second, func(p *v1alpha1.BridgePolicy) error {
		if p.Status.Activation.Slot != "blue" {
			return errors.New("it does not")
		}
		return nil
	})
	f.condition(p, samplePolicy, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonRolloutFailed)
}

// T57: a revision that fails turns which the one before finishes well is rolled back,
// without anybody's wish; an upstream that fails both is no reason.
func TestT57AWorseRevisionIsRolledBack(t *testing.T) {
	f := begin(t)
	f.streams["blue"] = 2
	f.image("localhost/causeway-proxy:2")
	f.until("the drain of blue", time.Second, step(v1alpha1.StepDraining, "green"))
	f.clock.SetTime(f.clock.Now().Add(70 * time.Second)) // reports are of the minute before them, which is to be after the promotion
	f.turns["blue"] = &v1alpha1.ReplicaTurns{Ended: 10, Failed: 9}
	f.turns["green"] = &v1alpha1.ReplicaTurns{Ended: 40, Failed: 35}
	for range 20 {
		f.turn()
		f.clock.SetTime(f.clock.Now().Add(time.Second))
	}
	f.until("nothing", time.Second, step(v1alpha1.StepDraining, "green"))
	f.turns["blue"] = &v1alpha1.ReplicaTurns{Ended: 10}
	p := f.until("blue serves again", time.Second, func(p *v1alpha1.BridgePolicy) error {
		if p.Status.ActiveSlot != "blue" || p.Status.Activation.Slot != "blue" {
			return errors.New("it does not")
		}
		return nil
	})
	f.condition(p, samplePolicy, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonRolloutFailed)
	f.event(v1alpha1.EventRolledBack, samplePolicy)
}

// curtain hides what happens to some kinds from the watches of an operator.
type curtain struct {
	paths  []string
	closed chan struct{} // a reader waits until it is closed
	down   atomic.Bool
}

func (c *curtain) wrap(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			res, err := next.RoundTrip(req)
			hidden := slices.ContainsFunc(c.paths, func(path string) bool { return strings.HasSuffix(req.URL.Path, path) })
			if err == nil && hidden && req.URL.Query().Get("watch") == "true" {
				res.Body = &hiddenBody{ReadCloser: res.Body, curtain: c}
			}
			return res, err
		})
	})
}

type hiddenBody struct {
	io.ReadCloser
	curtain *curtain
}

func (b *hiddenBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.curtain.down.Load() {
		<-b.curtain.closed
	}
	return n, err
}

// T51: an operator that still sees the slots and the Lease as they were, and the
// Service as it is, does not lead clients back. It reconciles all the time.
func TestT51AStaleOperatorCannotLeadClientsBack(t *testing.T) {
	c := newCluster(t)
	hidden := &curtain{paths: []string{"/deployments", "/leases"}, closed: make(chan struct{})}
	c.operate(hidden.wrap)
	t.Cleanup(func() { close(hidden.closed) }) // before the operator is waited for
	c.applySamples()
	f := newFleet(c)
	f.until("blue serves", 0, func(p *v1alpha1.BridgePolicy) error {
		if p.Status.Activation == nil || p.Status.Activation.Slot != "blue" || len(p.Status.History) != 1 {
			return errors.New("it does not")
		}
		return nil
	})
	hidden.down.Store(true)
	c.operate()
	f.image("localhost/causeway-proxy:2")
	f.until("green serves", time.Second, func(*v1alpha1.BridgePolicy) error {
		if got := strings.Join(f.seen, ","); got != "blue,both,green" {
			return errors.New("clients were led to " + got)
		}
		return nil
	})
	c.looks(20, "bridgepolicy")
	for range 20 {
		f.turn()
	}
	if got := strings.Join(f.seen, ","); got != "blue,both,green" {
		t.Errorf("clients were led to %s", got)
	}
	var green appsv1.Deployment
	f.get(&green, samplePolicy+"-green")
	if green.Spec.Template.Spec.Containers[0].Image != "localhost/causeway-proxy:2" || *green.Spec.Replicas != 2 {
		t.Errorf("green is %+v", green.Spec)
	}
}

// T48: a Lease that is deleted comes back, with no lower epoch.
func TestT48ADeletedLeaseComesBack(t *testing.T) {
	f := begin(t)
	f.must(f.client.Delete(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: samplePolicy + "-activation"}}))
	f.until("a new holder", 0, func(p *v1alpha1.BridgePolicy) error {
		if a := p.Status.Activation; a == nil || a.Epoch != 2 || a.Slot != "blue" {
			return fmt.Errorf("activation is %+v", a)
		}
		return nil
	})
	var l coordinationv1.Lease
	f.edit(&l, samplePolicy+"-activation", func(client.Object) { l.Annotations[v1alpha1.AnnotationNextHolder] = "green" })
	f.eventually("what the operator asks for", func(ctx context.Context) error {
		if err := f.client.Get(ctx, f.key(l.Name), &l); err != nil {
			return err
		}
		if got := l.Annotations[v1alpha1.AnnotationNextHolder]; got != "blue" {
			return fmt.Errorf("%s is asked", got)
		}
		return nil
	})
}

// A Lease of somebody else is not taken over.
func TestAForeignLeaseIsNotAdopted(t *testing.T) {
	c := newCluster(t)
	foreign := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: samplePolicy + "-activation"}}
	c.must(c.client.Create(t.Context(), foreign))
	c.operate()
	c.applySamples()
	got := c.condition(&v1alpha1.BridgePolicy{}, samplePolicy, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonAdoptionRefused)
	if !strings.Contains(got.Message, "Lease chat-activation") {
		t.Errorf("got %q", got.Message)
	}
}

// The preview leads to a candidate while there is one, and the autoscaler goes
// with authority.
func TestPreviewAndAutoscalerFollowTheSlots(t *testing.T) {
	f := begin(t)
	policy := &v1alpha1.BridgePolicy{}
	f.edit(policy, samplePolicy, func(client.Object) {
		policy.Spec.Replicas, policy.Spec.Autoscaling = nil, &v1alpha1.Autoscaling{MaxReplicas: 5}
		policy.Spec.Service = &v1alpha1.Service{ExposePreview: v1alpha1.SwitchEnabled}
		policy.Spec.Rollout = &v1alpha1.Rollout{Type: v1alpha1.RolloutBlueGreen, BlueGreen: &v1alpha1.BlueGreen{Promotion: v1alpha1.PromotionManual}}
		policy.Spec.Image = &v1alpha1.Image{Reference: "localhost/causeway-proxy:2"}
	})
	p := f.until("the gate", time.Second, step(v1alpha1.StepGate, "blue"))
	f.condition(policy, samplePolicy, v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonPromotionPending)
	preview := func(want string) {
		t.Helper()
		f.eventually("preview of "+want, func(ctx context.Context) error {
			var s corev1.Service
			if err := f.client.Get(ctx, f.key(samplePolicy+"-preview"), &s); err != nil {
				return err
			}
			if got := s.Spec.Selector[v1alpha1.LabelSlot]; got != want {
				return fmt.Errorf("it leads to %s", got)
			}
			return nil
		})
	}
	scaled := func(slot string, want bool) {
		t.Helper()
		f.eventually("autoscaler of "+slot, func(ctx context.Context) error {
			err := f.client.Get(ctx, f.key(samplePolicy+"-"+slot), &autoscalingv2.HorizontalPodAutoscaler{})
			if got := err == nil; got != want {
				return fmt.Errorf("it is there: %v (%w)", got, err)
			}
			return nil
		})
	}
	preview("green")
	scaled("blue", true)
	scaled("green", false)
	f.edit(policy, samplePolicy, func(client.Object) {
		policy.Annotations = maps.Clone(policy.Annotations)
		if policy.Annotations == nil {
			policy.Annotations = map[string]string{}
		}
		policy.Annotations[v1alpha1.AnnotationPromote] = p.Status.Rollout.CandidateRevision
	})
	f.until("the promotion", time.Second, step(v1alpha1.StepRetained, "green"))
	preview("none")
	scaled("green", true)
	scaled("blue", false)
}
