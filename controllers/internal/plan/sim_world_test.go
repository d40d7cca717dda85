package plan

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/causeway-dev/causeway/api/bundle"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/desired"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
)

// Images by what becomes of them.
const (
	imageBroken = "localhost/broken" // its pods never become ready
	imageMute   = "localhost/mute"   // its pods are ready and never take the Lease
	imageDeaf   = "localhost/deaf"   // its captain never lets go
	imageOld    = "localhost/old"    // its pods know nothing of the Lease
)

// sim is a cluster in small: an API server that knows versions, a kubelet, proxies
// that follow the protocol of the Lease, and an operator that may die at any time.
type sim struct {
	t   *testing.T
	now time.Time
	log strings.Builder

	w       World // as it is on the API server; Reports are made from proxies
	version int
	proxies []*proxy
	serial  int
	images  map[string]string // by revision

	cut    bool // nobody reaches the API server
	rolled bool // pods were replaced in place, as the user wanted
	served bool // the route has led somewhere
	epoch  int64
	past   []World // what caches may still show
	told   []Transition
	cuts   map[string]bool // revisions whose streams the user had cut

	oneWrite bool // each operator does one write
	dieAfter int  // so many writes; 0 = never
	dead     bool
}

var errConflict = errors.New("conflict")

func newSim(t *testing.T) *sim {
	t.Helper()
	f := newFake(t)
	s := &sim{t: t, now: start, w: f.w, images: map[string]string{}, cuts: map[string]bool{}}
	s.w.Slots = map[v1alpha1.SlotName]*appsv1.Deployment{}
	s.w.Autoscalers = map[v1alpha1.SlotName]*autoscalingv2.HorizontalPodAutoscaler{}
	s.w.Policy.Annotations = map[string]string{}
	s.image("localhost/causeway-proxy:1")
	return s
}

// image changes what the spec wants, and returns its revision.
func (s *sim) image(reference string) string {
	s.w.Policy = s.w.Policy.DeepCopy()
	s.w.Policy.Generation++
	s.w.Policy.Spec.Image = &v1alpha1.Image{Reference: reference}
	revision := effective.NewFleet(s.w.Policy, s.w.ProxyImage).Revision
	s.images[revision] = reference
	return revision
}

func (s *sim) settings(change func(*v1alpha1.BridgePolicySpec)) {
	s.w.Policy = s.w.Policy.DeepCopy()
	s.w.Policy.Generation++
	change(&s.w.Policy.Spec)
}

func (s *sim) wish(key, value string) {
	s.w.Policy = s.w.Policy.DeepCopy()
	if s.w.Policy.Annotations[key] = value; value == "" {
		delete(s.w.Policy.Annotations, key)
	}
}

func (s *sim) next() string {
	s.version++
	return strconv.Itoa(s.version)
}

// world is a copy of what is, as a cache would hold it.
func (s *sim) world() World {
	w := s.w
	w.Slots, w.Reports = map[v1alpha1.SlotName]*appsv1.Deployment{}, nil
	for name, d := range s.w.Slots {
		w.Slots[name] = d.DeepCopy()
	}
	w.Autoscalers = maps.Clone(s.w.Autoscalers)
	if s.w.Service != nil {
		w.Service = s.w.Service.DeepCopy()
	}
	if s.w.Lease != nil {
		w.Lease = s.w.Lease.DeepCopy()
	}
	for _, p := range s.proxies {
		w.Reports = append(w.Reports, reports.Report{Pod: p.pod.DeepCopy(), Replica: p.replica.DeepCopy()})
	}
	return w
}

// reconcile lets an operator look at a world and carry out the first actions of
// its plan, all when limit is negative. It tells whether something changed.
func (s *sim) reconcile(w World, limit int) (Plan, bool) {
	s.t.Helper()
	p := Next(w, s.now)
	if s.cut || s.dead {
		return p, false
	}
	before := s.version
	own := map[string]string{}
	for i, action := range p.Actions {
		if i == limit {
			return p, s.version != before
		}
		at := s.version
		if err := s.do(action, own); err != nil {
			s.note("          %s: %v", describe(action), err)
			return p, s.version != before
		}
		if s.version == at {
			continue
		}
		s.note("          %s", describe(action))
		if s.dieAfter--; s.dieAfter == 0 {
			s.dead = true
		}
		if s.oneWrite || s.dead {
			return p, true
		}
	}
	for _, t := range p.Rollout.Told {
		s.told = append(s.told, t)
		s.note("          event %s %s %s", t.Reason, t.Slot, t.Detail)
	}
	return p, s.version != before
}

func (s *sim) note(format string, args ...any) { fmt.Fprintf(&s.log, format+"\n", args...) }

// seen compares what was decided about with what is. A write that was made for
// the same plan counts as seen.
func seen(own map[string]string, key, seen, is string) error {
	if v, ok := own[key]; ok {
		seen = v
	}
	if seen != is {
		return errConflict
	}
	return nil
}

func (s *sim) do(action Action, own map[string]string) error {
	switch a := action.(type) {
	case WriteConfig:
		s.writeConfig(a)
	case ApplySlot:
		return s.edit(a.Slot.Slot, a.Seen, own, true, func(d *appsv1.Deployment) {
			d.Annotations[v1alpha1.AnnotationRevision] = a.Slot.Revision
		})
	case MarkSlot:
		s.cuts[a.Marks.FollowedCut] = true
		return s.edit(a.Slot.Slot, a.Seen, own, false, func(d *appsv1.Deployment) {
			for key, value := range a.Marks.Annotations() {
				if delete(d.Annotations, key); value != nil {
					d.Annotations[key] = value.(string)
				}
			}
		})
	case ScaleSlot:
		return s.edit(a.Slot.Slot, a.Seen, own, false, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(a.Replicas) })
	case SwitchRoute:
		return s.switchRoute(a, own)
	case CreateLease:
		if s.w.Lease != nil {
			return errConflict
		}
		s.w.Lease = desired.Lease(a.Fleet, a.Next, a.Epoch, a.Seconds, a.At)
		s.w.Lease.ResourceVersion = s.next()
	case RequestHandover:
		if s.w.Lease == nil || s.w.Lease.ResourceVersion != a.Seen {
			return errConflict
		}
		if s.w.Lease.Annotations[v1alpha1.AnnotationNextHolder] != string(a.Next) {
			s.w.Lease.Annotations[v1alpha1.AnnotationNextHolder] = string(a.Next)
			s.w.Lease.ResourceVersion = s.next()
		}
	case ApplyAutoscaler:
		if s.w.Autoscalers[a.Slot.Slot] == nil {
			s.w.Autoscalers[a.Slot.Slot] = &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{UID: types.UID(s.next())}}
		}
	case DropAutoscaler:
		if h := s.w.Autoscalers[a.Slot.Slot]; h != nil && h.UID == a.UID {
			s.next()
			delete(s.w.Autoscalers, a.Slot.Slot)
		}
	case HoldPods:
		s.holdPods(a)
	case NotifyPods:
		for _, ref := range a.Pods {
			if p := s.proxy(ref.UID); p != nil && p.pod.Annotations[v1alpha1.AnnotationConfigHash] != a.Hash {
				p.pod.Annotations[v1alpha1.AnnotationConfigHash] = a.Hash
			}
		}
	}
	return nil
}

func (s *sim) holdPods(a HoldPods) {
	for _, ref := range a.Pods {
		p := s.proxy(ref.UID)
		if p == nil {
			continue
		}
		s.next()
		for key, value := range HeldBy() {
			if delete(p.pod.Annotations, key); a.Hold {
				p.pod.Annotations[key] = value
			}
		}
	}
}

func (s *sim) writeConfig(a WriteConfig) {
	if s.w.Config != nil && s.w.Config.Annotations[v1alpha1.AnnotationConfigHash] == a.Documents.BundleHash {
		return
	}
	s.w.Credentials = a.Documents.Credentials
	s.w.Config = &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: s.next(), Annotations: map[string]string{
			v1alpha1.AnnotationConfigHash:      a.Documents.BundleHash,
			v1alpha1.AnnotationCredentialsHash: a.Documents.CredentialsHash,
			desired.AnnotationChangedAt:        a.Documents.ChangedAt,
			desired.AnnotationCause:            string(a.Documents.Cause),
		}},
		Data: map[string]string{bundle.FileName: string(a.Documents.Bundle)},
	}
}

// edit changes a Deployment as the API server would: in the version that was
// seen, and into a new one only if something changes.
func (s *sim) edit(slot v1alpha1.SlotName, version string, own map[string]string, create bool, change func(*appsv1.Deployment)) error {
	is, current := "", s.w.Slots[slot]
	after := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
	after.Spec.Replicas = ptr.To[int32](1)
	if current != nil {
		is, after = current.ResourceVersion, current.DeepCopy()
	}
	change(after)
	if current != nil && maps.Equal(current.Annotations, after.Annotations) && *current.Spec.Replicas == *after.Spec.Replicas {
		return nil // the write would be left out, or change nothing
	}
	if err := seen(own, string(slot), version, is); err != nil || current == nil && !create {
		return errConflict
	}
	after.ResourceVersion = s.next()
	own[string(slot)] = after.ResourceVersion
	s.w.Slots[slot] = after
	return nil
}

func (s *sim) switchRoute(a SwitchRoute, own map[string]string) error {
	selector := a.Active.Selector()
	if a.Wide {
		delete(selector, v1alpha1.LabelSlot)
	}
	annotations := map[string]string{}
	if a.PromotedAt != "" {
		annotations[v1alpha1.AnnotationActiveSlot] = string(a.Active.Slot)
		annotations[v1alpha1.AnnotationPromotedAt] = a.PromotedAt
	}
	is := ""
	if v := s.w.Service; v != nil {
		if maps.Equal(v.Spec.Selector, selector) && maps.Equal(v.Annotations, annotations) {
			return nil
		}
		is = v.ResourceVersion
	}
	if err := seen(own, "Service", a.Seen, is); err != nil {
		return err
	}
	s.w.Service = &corev1.Service{ObjectMeta: metav1.ObjectMeta{ResourceVersion: s.next(), Annotations: annotations}}
	s.w.Service.Spec.Selector = selector
	return nil
}
