// Package plan decides what to do next for a BridgePolicy. It is pure: a World
// and a time go in, Actions and Facts come out.
package plan

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	apieffective "github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/desired"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
)

// World is what was observed for one BridgePolicy.
type World struct {
	Policy *v1alpha1.BridgePolicy
	// Pool and Circuit are nil when they do not exist.
	Pool    *v1alpha1.AccountPool
	Circuit *v1alpha1.CircuitPolicy
	// Secrets holds the content of those that exist, by name. It must not be
	// logged, and nothing of it may go into Facts.
	Secrets map[string]map[string][]byte
	// Credentials is the document that is stored for the proxies, nil when there is
	// none, and FreshPeerKey a peer key to use if it holds none. As with Secrets,
	// nothing of them may be logged or go into Facts.
	Credentials  []byte
	FreshPeerKey string
	// CredentialsVersion is that of the Secret which was read for it, empty when there
	// was none: a key that somebody puts there meanwhile must not be written over.
	CredentialsVersion string
	// Config is the ConfigMap as it is now, nil when there is none.
	Config *corev1.ConfigMap
	// Slots are the Deployments of the slots that exist, and Autoscalers what
	// scales them.
	Slots       map[v1alpha1.SlotName]*appsv1.Deployment
	Autoscalers map[v1alpha1.SlotName]*autoscalingv2.HorizontalPodAutoscaler
	// Service of the clients, Preview of a candidate and the activation Lease are
	// nil when they do not exist.
	Service, Preview *corev1.Service
	Lease            *coordinationv1.Lease
	// Reports are the live pods of the policy with their BridgeReplicas.
	Reports []reports.Report
	// ProxyImage is the image that the operator was released with.
	ProxyImage string
}

// Plan is what to do and what was found.
type Plan struct {
	Actions []Action
	// Wait is when to look again though nothing changed; 0 = not needed.
	Wait time.Duration
	Facts
}

// Facts are what a status is made from.
type Facts struct {
	Fleet  effective.Fleet
	Active v1alpha1.SlotName

	Accepted Verdict
	Refs     Verdict
	Paused   bool
	// Warnings are valid but risky choices of the spec.
	Warnings []apieffective.Warning
	// BundleHash and CredentialsHash name the configuration that proxies shall
	// serve; empty when there is none yet.
	BundleHash, CredentialsHash string
	Programmed                  Acknowledgement
	Reports                     reports.Merged
	Rollout                     Rollout
}

// ConfigHash names both documents in one word; empty when there are none yet.
func (f Facts) ConfigHash() string {
	if f.BundleHash == "" {
		return ""
	}
	return reports.ConfigHash(f.BundleHash, f.CredentialsHash)
}

// Verdict is a condition before it becomes one.
type Verdict struct {
	OK      bool
	Reason  string
	Message string
}

// Action is one thing to do. The set of actions is closed.
type Action interface{ action() }

// GrantAccess makes the proxies' ServiceAccount, Role and RoleBinding.
type GrantAccess struct{ Fleet effective.Fleet }

// WriteConfig stores the documents of the proxies.
type WriteConfig struct {
	Fleet     effective.Fleet
	Documents desired.Documents
	// Seen is the version of the Secret whose peer keys are in Documents.
	Seen string
}

// ApplySlot brings the Deployment of a slot up to date, but for the number of
// replicas.
//
// Seen, here and below, is the version of the object that was decided about. Whoever
// decided on an old view of the world writes nothing; empty = the object was not
// there.
type ApplySlot struct {
	Slot effective.Slot
	Seen string
}

// MarkSlot notes on the Deployment of a slot how far its rollout is.
type MarkSlot struct {
	Slot  effective.Slot
	Marks Marks
	Seen  string
}

// ScaleSlot sets the number of replicas of a slot.
type ScaleSlot struct {
	Slot     effective.Slot
	Replicas int32
	Seen     string
}

// GuardSlot says how many pods of a slot a drain of nodes may take at once: one,
// or none while they are Held.
type GuardSlot struct {
	Slot effective.Slot
	Held bool
}

// CreateLease makes the activation Lease, which names the slot that shall have
// authority.
type CreateLease struct {
	Fleet   effective.Fleet
	Next    v1alpha1.SlotName
	Epoch   int64
	Seconds int32
	At      string
}

// RequestHandover asks for another slot to have authority.
type RequestHandover struct {
	Fleet effective.Fleet
	Next  v1alpha1.SlotName
	Seen  string
}

// SwitchRoute points the Service of the clients to a slot, or with Wide to both,
// and the Services of the slots to theirs.
type SwitchRoute struct {
	Active     effective.Slot
	Wide       bool
	PromotedAt string
	Seen       string
}

// ShowPreview points the preview Service to a slot; to none when it is empty.
type ShowPreview struct {
	Fleet effective.Fleet
	Slot  v1alpha1.SlotName
}

// ApplyAutoscaler makes a slot scale by itself.
type ApplyAutoscaler struct{ Slot effective.Slot }

// DropAutoscaler ends that.
type DropAutoscaler struct {
	Slot effective.Slot
	UID  types.UID
}

// HoldPods asks whoever removes nodes to leave pods alone, or takes that back.
type HoldPods struct {
	Pods []PodRef
	Hold bool
}

// NotifyPods marks pods with the configuration they shall serve, which makes
// the kubelet sync their files at once.
type NotifyPods struct {
	Pods []PodRef
	Hash string
}

// PodRef names one pod and no later one of the same name.
type PodRef struct {
	types.NamespacedName
	UID types.UID
}

func (GrantAccess) action()     {}
func (WriteConfig) action()     {}
func (ApplySlot) action()       {}
func (MarkSlot) action()        {}
func (ScaleSlot) action()       {}
func (GuardSlot) action()       {}
func (CreateLease) action()     {}
func (RequestHandover) action() {}
func (SwitchRoute) action()     {}
func (ShowPreview) action()     {}
func (ApplyAutoscaler) action() {}
func (DropAutoscaler) action()  {}
func (HoldPods) action()        {}
func (NotifyPods) action()      {}
