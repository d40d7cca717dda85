package plan

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/causeway-dev/causeway/api/bundle"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// proxy is a pod and the process in it.
type proxy struct {
	pod     *corev1.Pod
	replica *v1alpha1.BridgeReplica
	slot    v1alpha1.SlotName
	image   string

	frozen   bool
	orphan   bool // the Lease was deleted, and it has not looked since
	captain  bool // it holds the Lease, as far as it knows
	holder   string
	epoch    int64
	lastSeen string // version of the Lease
	since    time.Time
	sessions int32
	endless  bool // its sessions do not end
	// turns of the last minute; nil = none.
	turns *v1alpha1.ReplicaTurns
}

func (p *proxy) ready() bool { return len(p.pod.Status.Conditions) > 0 }

func (p *proxy) id() string {
	return bundle.Holder{Slot: string(p.slot), Pod: p.pod.Name, UID: string(p.pod.UID), Nonce: "n"}.String()
}

func (s *sim) proxy(uid types.UID) *proxy {
	for _, p := range s.proxies {
		if p.pod.UID == uid {
			return p
		}
	}
	return nil
}

func (s *sim) of(slot v1alpha1.SlotName) (list []*proxy) {
	for _, p := range s.proxies {
		if p.slot == slot {
			list = append(list, p)
		}
	}
	return list
}

// kubelet makes and ends one pod for each slot that has not what its Deployment
// wants, and makes another one ready.
func (s *sim) kubelet() (changed bool) {
	for name, d := range s.w.Slots {
		pods, revision := s.of(name), d.Annotations[v1alpha1.AnnotationRevision]
		var outdated, surplus *proxy
		ready := 0
		for _, p := range pods {
			if p.ready() {
				ready++
			}
			if p.pod.Labels[v1alpha1.AnnotationRevision] != revision && (outdated == nil || !p.ready()) {
				outdated = p
			}
			if surplus == nil || !p.ready() {
				surplus = p
			}
		}
		switch want := int(*d.Spec.Replicas); {
		case len(pods) < want || outdated != nil && len(pods) == want:
			s.start(name, revision)
		case outdated != nil && (ready > want || !outdated.ready()):
			s.end(outdated)
		case outdated != nil:
			continue // none may be missing
		case len(pods) > want:
			s.end(surplus)
		default:
			continue
		}
		changed = true
	}
	for _, p := range s.proxies {
		if !p.ready() && p.image != imageBroken {
			p.pod.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(s.now)}}
			return true
		}
	}
	return changed
}

func (s *sim) start(slot v1alpha1.SlotName, revision string) {
	s.serial++
	name := fmt.Sprintf("chat-%s-%d", slot, s.serial)
	s.proxies = append(s.proxies, &proxy{slot: slot, image: s.images[revision],
		pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{},
			Labels: map[string]string{v1alpha1.LabelSlot: string(slot), v1alpha1.AnnotationRevision: revision}}},
		replica: &v1alpha1.BridgeReplica{ObjectMeta: metav1.ObjectMeta{Name: name}},
	})
}

// end ends a pod. A captain leaves the Lease to its slot.
func (s *sim) end(p *proxy) {
	s.mayEnd(p)
	if p.captain && !p.frozen && !s.cut && s.w.Lease != nil && *s.w.Lease.Spec.HolderIdentity == p.id() {
		s.hold(string(p.slot), false)
	}
	for i, other := range s.proxies {
		if other == p {
			s.proxies = append(s.proxies[:i:i], s.proxies[i+1:]...)
			return
		}
	}
}

// hold writes the holder as proxies do, with the next epoch for a new one.
func (s *sim) hold(holder string, acquired bool) {
	l := s.w.Lease
	l.Spec.HolderIdentity = &holder
	l.ResourceVersion = s.next()
	if acquired {
		epoch, _ := strconv.ParseInt(l.Annotations[v1alpha1.AnnotationEpoch], 10, 64)
		l.Annotations[v1alpha1.AnnotationEpoch] = strconv.FormatInt(epoch+1, 10)
	}
}

// look is what a proxy does every few seconds with the Lease.
func (s *sim) look(p *proxy) (changed bool) {
	l := s.w.Lease
	if p.frozen || s.cut || p.image == imageOld || !p.ready() {
		return false
	}
	p.orphan = false
	if l == nil || s.rolling() {
		p.captain, p.holder = false, ""
		return false
	}
	if l.ResourceVersion != p.lastSeen {
		p.lastSeen, p.since = l.ResourceVersion, s.now
	}
	holder := ""
	if id := l.Spec.HolderIdentity; id != nil {
		holder = *id
	}
	h, _ := bundle.ParseHolder(holder)
	asked := l.Annotations[v1alpha1.AnnotationNextHolder] == string(p.slot)
	p.captain = p.captain && holder == p.id()
	expired := s.now.Sub(p.since) >= time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second
	switch {
	case p.captain && !asked && p.image != imageDeaf, holder == string(p.slot) && !asked:
		p.captain, changed = false, true
		s.hold("", false)
	case p.captain:
		s.hold(holder, false) // renewed
	case asked && p.image != imageMute && (h.Pod == "" && (h.Slot == "" || h.Slot == string(p.slot)) || expired):
		p.captain, changed = true, true
		s.hold(p.id(), true)
	}
	if l.Spec.HolderIdentity != nil {
		p.holder = *l.Spec.HolderIdentity
	}
	p.epoch, _ = strconv.ParseInt(l.Annotations[v1alpha1.AnnotationEpoch], 10, 64)
	if l.ResourceVersion != p.lastSeen { // its own write
		p.lastSeen, p.since = l.ResourceVersion, s.now
	}
	return changed
}

// rolling says that there is one slot, and no Lease in the bundle.
func (s *sim) rolling() bool {
	return effectiveSettings(s.w).RolloutType == v1alpha1.RolloutRollingUpdate
}

// report writes the BridgeReplica of a proxy.
func (s *sim) report(p *proxy) (changed bool) {
	if p.frozen || s.cut || !p.ready() || s.w.Config == nil {
		return false
	}
	h, _ := bundle.ParseHolder(p.holder)
	role := v1alpha1.RoleStandby
	switch {
	case p.image == imageOld || s.rolling() || h.Slot == string(p.slot):
		role = v1alpha1.RoleServing
	case p.sessions > 0:
		role = v1alpha1.RoleDraining
	}
	before, at := p.replica.Status, metav1.NewTime(s.now)
	p.replica.Status = v1alpha1.BridgeReplicaStatus{
		ReportedAt: &at, Role: role, Epoch: p.epoch, Sessions: &v1alpha1.ReplicaSessions{Active: p.sessions}, Turns: p.turns,
		ObservedConfig: &v1alpha1.ObservedConfig{
			Hash:            s.w.Config.Annotations[v1alpha1.AnnotationConfigHash],
			CredentialsHash: s.w.Config.Annotations[v1alpha1.AnnotationCredentialsHash], State: v1alpha1.ConfigApplied,
		},
	}
	return before.ReportedAt == nil || before.Role != role || before.Epoch != p.epoch ||
		before.Sessions.Active != p.sessions || before.ObservedConfig.Hash != p.replica.Status.ObservedConfig.Hash
}

// routed are the ready pods behind the Service of the clients.
func (s *sim) routed() (n int) {
	if s.w.Service == nil {
		return 0
	}
	slot, narrow := s.w.Service.Spec.Selector[v1alpha1.LabelSlot]
	for _, p := range s.proxies {
		if p.ready() && (!narrow || slot == string(p.slot)) {
			n++
		}
	}
	return n
}

// mayEnd checks that nobody loses a stream who has time left.
func (s *sim) mayEnd(p *proxy) {
	s.t.Helper()
	d := s.w.Slots[p.slot]
	m := readMarks(d.Annotations)
	f := effectiveSettings(s.w)
	other := readMarks(s.otherOf(p.slot))
	switch {
	case p.sessions == 0:
	case s.rolled && p.pod.Labels[v1alpha1.AnnotationRevision] != d.Annotations[v1alpha1.AnnotationRevision]: // replaced in place
	case s.w.Autoscalers[p.slot] != nil: // by the autoscaler
	case !m.DrainingAt.IsZero() && !s.now.Before(m.DrainingAt.Add(seconds(f.DrainDeadline))):
	case s.cuts[d.Annotations[v1alpha1.AnnotationRevision]]:
	case !other.HandoverAt.IsZero() && !s.now.Before(other.HandoverAt.Add(seconds(f.ForceAfterSeconds))):
	case *d.Spec.Replicas == 0 && slices.ContainsFunc(s.told, func(t Transition) bool {
		return t.Reason == v1alpha1.EventActivationForced && t.Revision == p.pod.Labels[v1alpha1.AnnotationRevision]
	}):
	default:
		s.broken("pod %s of %s ended with %d sessions; marks %v", p.pod.Name, p.slot, p.sessions, m.Annotations())
	}
}
