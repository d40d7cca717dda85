package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/api/bundle"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// fleet plays the controller of Deployments, the kubelet and the proxies of a
// bridge: it brings the pods to what the Deployments want, and lets one pod of the
// slot that is asked for take the Lease.
type fleet struct {
	*cluster
	streams map[string]int32 // sessions of each pod, by slot
	broken  string           // pods of this image never become ready
	mute    bool             // nobody takes the Lease
	seen    []string         // what the Service selected, in order
}

func newFleet(c *cluster) *fleet { return &fleet{cluster: c, streams: map[string]int32{}} }

// turn lets everybody do what is due once.
func (f *fleet) turn() {
	f.t.Helper()
	for _, slot := range []string{"blue", "green"} {
		var d appsv1.Deployment
		err := f.client.Get(f.t.Context(), f.key(samplePolicy+"-"+slot), &d)
		if apierrors.IsNotFound(err) {
			continue
		}
		f.must(err)
		f.pods(&d, slot)
	}
	f.lease()
	f.reports()
	f.route()
}

func (f *fleet) pods(d *appsv1.Deployment, slot string) {
	f.t.Helper()
	revision := d.Annotations[v1alpha1.AnnotationRevision]
	want := int(*d.Spec.Replicas)
	for i := range 9 {
		name := fmt.Sprintf("%s-%s-%d", samplePolicy, slot, i)
		var pod corev1.Pod
		err := f.client.Get(f.t.Context(), f.key(name), &pod)
		exists := err == nil
		f.must(client.IgnoreNotFound(err))
		if exists && (i >= want || pod.Labels[v1alpha1.AnnotationRevision] != revision) {
			f.must(client.IgnoreNotFound(f.client.Delete(f.t.Context(), &pod, client.GracePeriodSeconds(0))))
			continue
		}
		if exists || i >= want {
			continue
		}
		template := d.Spec.Template.DeepCopy()
		pod = corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.Namespace, pod.Name = f.namespace, name
		f.must(f.client.Create(f.t.Context(), &pod))
		if pod.Spec.Containers[0].Image == f.broken {
			continue
		}
		before := pod.DeepCopy() // the operator marks it meanwhile
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(f.clock.Now())}}
		f.must(f.client.Status().Patch(f.t.Context(), &pod, client.MergeFrom(before)))
	}
	n := d.Spec.Replicas
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: *n, UpdatedReplicas: *n, ReadyReplicas: *n, AvailableReplicas: *n}
	if err := f.client.Status().Update(f.t.Context(), d); !apierrors.IsConflict(err) {
		f.must(err)
	}
}

// lease does what captains do: the slot that is not asked for lets go, a pod of
// the other one acquires with the next epoch.
func (f *fleet) lease() {
	f.t.Helper()
	var l coordinationv1.Lease
	if err := f.client.Get(f.t.Context(), f.key(samplePolicy+"-activation"), &l); err != nil {
		f.must(client.IgnoreNotFound(err))
		return
	}
	next := l.Annotations[v1alpha1.AnnotationNextHolder]
	h, _ := bundle.ParseHolder(ptr.Deref(l.Spec.HolderIdentity, ""))
	var pod corev1.Pod
	err := f.client.Get(f.t.Context(), f.key(samplePolicy+"-"+next+"-0"), &pod)
	switch {
	case h.Slot == next:
		return
	case h.Slot != "":
		l.Spec.HolderIdentity = ptr.To("")
	case err != nil || len(pod.Status.Conditions) == 0 || f.mute:
		return
	default:
		l.Spec.HolderIdentity = ptr.To(bundle.Holder{Slot: next, Pod: pod.Name, UID: string(pod.UID), Nonce: "n"}.String())
		epoch, _ := strconv.Atoi(l.Annotations[v1alpha1.AnnotationEpoch])
		l.Annotations[v1alpha1.AnnotationEpoch] = strconv.Itoa(epoch + 1)
	}
	if err := f.client.Update(f.t.Context(), &l); !apierrors.IsConflict(err) {
		f.must(err)
	}
}

func (f *fleet) reports() {
	f.t.Helper()
	var l coordinationv1.Lease
	if err := f.client.Get(f.t.Context(), f.key(samplePolicy+"-activation"), &l); err != nil {
		return
	}
	var cm corev1.ConfigMap
	f.get(&cm, samplePolicy+"-config")
	h, _ := bundle.ParseHolder(ptr.Deref(l.Spec.HolderIdentity, ""))
	epoch, _ := strconv.ParseInt(l.Annotations[v1alpha1.AnnotationEpoch], 10, 64)
	var list v1alpha1.BridgeReplicaList
	f.must(f.client.List(f.t.Context(), &list, client.InNamespace(f.namespace)))
	for _, r := range list.Items {
		slot, at := string(r.Spec.Slot), metav1.NewTime(f.clock.Now())
		role := v1alpha1.RoleStandby
		switch {
		case slot == h.Slot:
			role = v1alpha1.RoleServing
		case f.streams[slot] > 0:
			role = v1alpha1.RoleDraining
		}
		after := v1alpha1.BridgeReplicaStatus{Role: role, Epoch: epoch, ReportedAt: &at, ReportSequence: 1,
			Sessions: &v1alpha1.ReplicaSessions{Active: f.streams[slot]},
			Accounts: []v1alpha1.ReplicaAccount{{Name: "primary", State: v1alpha1.AccountConditionUsable}},
			ObservedConfig: &v1alpha1.ObservedConfig{Hash: cm.Annotations[v1alpha1.AnnotationConfigHash],
				CredentialsHash: cm.Annotations[v1alpha1.AnnotationCredentialsHash], State: v1alpha1.ConfigApplied}}
		if r.Status.Role == role && r.Status.Epoch == epoch && r.Status.Sessions.Active == f.streams[slot] &&
			r.Status.ObservedConfig.Hash == after.ObservedConfig.Hash {
			continue
		}
		r.Status = after
		if err := f.client.Status().Update(f.t.Context(), &r); !apierrors.IsConflict(err) {
			f.must(client.IgnoreNotFound(err))
		}
	}
}

// route notes where the Service of the clients leads.
func (f *fleet) route() {
	f.t.Helper()
	var s corev1.Service
	if err := f.client.Get(f.t.Context(), f.key(samplePolicy), &s); err != nil {
		return
	}
	slot, narrow := s.Spec.Selector[v1alpha1.LabelSlot]
	if !narrow {
		slot = "both"
	}
	if n := len(f.seen); n == 0 || f.seen[n-1] != slot {
		f.seen = append(f.seen, slot)
	}
}

// until lets everybody act, and time go by, until check returns no error.
func (f *fleet) until(what string, pass time.Duration, check func(p *v1alpha1.BridgePolicy) error) *v1alpha1.BridgePolicy {
	f.t.Helper()
	policy := &v1alpha1.BridgePolicy{}
	f.eventually(what, func(ctx context.Context) error {
		f.turn()
		if err := f.client.Get(ctx, f.key(samplePolicy), policy); err != nil {
			return err
		}
		if err := check(policy); err != nil {
			f.clock.SetTime(f.clock.Now().Add(pass))
			return fmt.Errorf("%w; %+v; %s", err, policy.Status.Rollout, show(policy.Status.Conditions))
		}
		return nil
	})
	return policy
}

func step(want v1alpha1.RolloutStep, active v1alpha1.SlotName) func(p *v1alpha1.BridgePolicy) error {
	return func(p *v1alpha1.BridgePolicy) error {
		if p.Status.Rollout == nil || p.Status.Rollout.Step != want || p.Status.ActiveSlot != active {
			return errors.New("not in step " + string(want))
		}
		return nil
	}
}

// begin brings the samples up with a fleet that follows the protocol.
func begin(t *testing.T) *fleet {
	t.Helper()
	c := newCluster(t)
	c.operate()
	c.applySamples()
	f := newFleet(c)
	f.until("a bridge that serves", 0, func(p *v1alpha1.BridgePolicy) error {
		if p.Status.Activation == nil || p.Status.Activation.Slot != "blue" || len(p.Status.History) != 1 {
			return errors.New("blue does not serve")
		}
		return nil
	})
	return f
}

func (f *fleet) image(reference string) {
	f.t.Helper()
	policy := &v1alpha1.BridgePolicy{}
	f.edit(policy, samplePolicy, func(client.Object) { policy.Spec.Image = &v1alpha1.Image{Reference: reference} })
}

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
