package integration

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	turns   map[string]*v1alpha1.ReplicaTurns
	broken  string   // pods of this image never become ready
	mute    bool     // nobody takes the Lease
	seen    []string // what the Service selected, in order
}

func newFleet(c *cluster) *fleet {
	return &fleet{cluster: c, streams: map[string]int32{}, turns: map[string]*v1alpha1.ReplicaTurns{}}
}

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
			Sessions: &v1alpha1.ReplicaSessions{Active: f.streams[slot]}, Turns: f.turns[slot],
			Accounts: []v1alpha1.ReplicaAccount{{Name: "primary", State: v1alpha1.AccountConditionUsable}},
			ObservedConfig: &v1alpha1.ObservedConfig{Hash: cm.Annotations[v1alpha1.AnnotationConfigHash],
				CredentialsHash: cm.Annotations[v1alpha1.AnnotationCredentialsHash], State: v1alpha1.ConfigApplied}}
		if r.Status.Role == role && r.Status.Epoch == epoch && r.Status.Sessions.Active == f.streams[slot] &&
			cmp.Equal(r.Status.Turns, f.turns[slot]) && r.Status.ObservedConfig.Hash == after.ObservedConfig.Hash {
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
