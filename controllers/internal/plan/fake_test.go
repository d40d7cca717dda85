package plan

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/causeway-dev/causeway/api/bundle"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/desired"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fake is a world that carries out plans.
type fake struct {
	t   *testing.T
	w   World
	now time.Time
	log strings.Builder
}

func newFake(t *testing.T) *fake {
	t.Helper()
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "agents", Name: name, Generation: 1}
	}
	return &fake{t: t, now: start, w: World{
		ProxyImage:   "localhost/causeway-proxy:1",
		FreshPeerKey: peerKey("fresh"),
		Policy: &v1alpha1.BridgePolicy{ObjectMeta: meta("chat"), Spec: v1alpha1.BridgePolicySpec{
			AccountPoolRef: v1alpha1.LocalObjectReference{Name: "team"},
			Clients:        v1alpha1.Clients{KeysSecretRef: &v1alpha1.LocalObjectReference{Name: "clients"}},
		}},
		Pool: &v1alpha1.AccountPool{ObjectMeta: meta("team"), Spec: v1alpha1.AccountPoolSpec{
			Provider: v1alpha1.Provider{Type: v1alpha1.ProviderOpenAIPlatform},
			Accounts: []v1alpha1.Account{{Name: "a", APIKey: &v1alpha1.APIKey{
				SecretRef: v1alpha1.SecretKeyReference{Name: "keys", Key: "a"}}}},
		}},
		Secrets: map[string]map[string][]byte{
			"keys":    {"a": []byte("sk-one")},
			"clients": {"demo": []byte("cwk-demo")},
		},
	}}
}

// peerKey makes a key of a word.
func peerKey(word string) string {
	sum := sha256.Sum256([]byte(word))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// step plans, logs and carries out.
func (f *fake) step(what string) Plan {
	f.t.Helper()
	p := Next(f.w, f.now)
	fmt.Fprintf(&f.log, "%s  %s\n", f.now.Format(time.TimeOnly), what)
	for _, action := range p.Actions {
		fmt.Fprintf(&f.log, "          %s\n", describe(action))
		f.do(action)
	}
	fmt.Fprintf(&f.log, "          Accepted %s, Refs %s, Programmed %s/%s, wait %s\n",
		p.Accepted.Reason, p.Refs.Reason, p.Programmed.Status, p.Programmed.Reason, p.Wait)
	return p
}

func describe(action Action) string {
	switch a := action.(type) {
	case GrantAccess:
		return "GrantAccess"
	case WriteConfig:
		return fmt.Sprintf("WriteConfig cause=%s changed=%s", a.Documents.Cause, a.Documents.ChangedAt)
	case ApplySlot:
		return "ApplySlot " + string(a.Slot.Slot)
	case ScaleSlot:
		return fmt.Sprintf("ScaleSlot %s %d", a.Slot.Slot, a.Replicas)
	case SwitchRoute:
		return "SwitchRoute " + string(a.Active.Slot) + map[bool]string{true: " wide"}[a.Wide]
	case MarkSlot:
		var set []string
		for key, value := range a.Marks.Annotations() {
			if value != nil {
				set = append(set, strings.TrimPrefix(key, v1alpha1.Prefix))
			}
		}
		slices.Sort(set)
		return fmt.Sprintf("MarkSlot %s %s", a.Slot.Slot, strings.Join(set, ","))
	case GuardSlot:
		return fmt.Sprintf("GuardSlot %s%s", a.Slot.Slot, map[bool]string{true: " held"}[a.Held])
	case CreateLease:
		return fmt.Sprintf("CreateLease next=%s epoch=%d", a.Next, a.Epoch)
	case RequestHandover:
		return "RequestHandover " + string(a.Next)
	case ApplyAutoscaler:
		return "ApplyAutoscaler " + string(a.Slot.Slot)
	case DropAutoscaler:
		return "DropAutoscaler " + string(a.Slot.Slot)
	case ShowPreview:
		return "ShowPreview " + string(a.Slot)
	case HoldPods:
		return fmt.Sprintf("HoldPods %d%s", len(a.Pods), map[bool]string{false: " no more"}[a.Hold])
	case NotifyPods:
		return fmt.Sprintf("NotifyPods %d", len(a.Pods))
	default:
		return fmt.Sprintf("unknown action %T", a)
	}
}

func (f *fake) do(action Action) {
	switch a := action.(type) {
	case WriteConfig:
		f.w.Credentials = a.Documents.Credentials
		f.w.Config = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				v1alpha1.AnnotationConfigHash:      a.Documents.BundleHash,
				v1alpha1.AnnotationCredentialsHash: a.Documents.CredentialsHash,
				desired.AnnotationChangedAt:        a.Documents.ChangedAt,
				desired.AnnotationCause:            string(a.Documents.Cause),
			}},
			Data: map[string]string{bundle.FileName: string(a.Documents.Bundle)},
		}
	case ApplySlot:
		d := f.w.Slots[a.Slot.Slot]
		if d == nil {
			d = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
		}
		d.Annotations[v1alpha1.AnnotationRevision] = a.Slot.Revision
		f.w.Slots = map[v1alpha1.SlotName]*appsv1.Deployment{a.Slot.Slot: d}
	case MarkSlot:
		for key, value := range a.Marks.Annotations() {
			if text, ok := value.(string); ok {
				f.w.Slots[a.Slot.Slot].Annotations[key] = text
			}
		}
	case CreateLease:
		f.w.Lease = desired.Lease(a.Fleet, a.Next, a.Epoch, a.Seconds, a.At)
	case NotifyPods:
		for _, ref := range a.Pods {
			for _, r := range f.w.Reports {
				if r.Pod.UID == ref.UID {
					r.Pod.Annotations = map[string]string{v1alpha1.AnnotationConfigHash: a.Hash}
				}
			}
		}
	}
}

// pods makes n ready pods that have not reported.
func (f *fake) pods(n int) {
	for i := range n {
		name := fmt.Sprintf("chat-blue-%d", i)
		f.w.Reports = append(f.w.Reports, reports.Report{
			Pod: &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: name, UID: types.UID("uid-" + name),
					Labels: map[string]string{v1alpha1.LabelSlot: "blue"}},
				Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
					Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(f.now)}}},
			},
			Replica: &v1alpha1.BridgeReplica{ObjectMeta: metav1.ObjectMeta{Name: name}},
		})
	}
}

// acknowledge makes the given pods report what is stored, in a state.
func (f *fake) acknowledge(state v1alpha1.ConfigState, reason string, which ...int) {
	at := metav1.NewTime(f.now)
	for _, i := range which {
		f.w.Reports[i].Replica.Status = v1alpha1.BridgeReplicaStatus{
			ReportedAt: &at,
			ObservedConfig: &v1alpha1.ObservedConfig{
				Hash:            f.w.Config.Annotations[v1alpha1.AnnotationConfigHash],
				CredentialsHash: f.w.Config.Annotations[v1alpha1.AnnotationCredentialsHash],
				State:           state, Reason: reason,
			},
		}
	}
}

func (f *fake) pass(d time.Duration) { f.now = f.now.Add(d) }

// served is a fake whose two proxies serve what is stored.
func served(t *testing.T) *fake {
	t.Helper()
	f := newFake(t)
	f.step("created")
	f.pods(2)
	f.step("pods")
	f.acknowledge(v1alpha1.ConfigApplied, "", 0, 1)
	return f
}
