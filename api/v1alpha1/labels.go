package v1alpha1

// Prefix of all labels and annotations of ours; users may not set such keys on
// pods and Services.
const Prefix = GroupName + "/"

// AppPrefix is the prefix of the recommended Kubernetes labels, which the
// operator sets on everything it makes.
const AppPrefix = "app.kubernetes.io/"

// Labels that the operator sets on what it makes. Selectors use AppName,
// AppInstance, AppComponent and LabelSlot only.
const (
	AppName      = AppPrefix + "name"
	AppInstance  = AppPrefix + "instance"
	AppComponent = AppPrefix + "component"
	AppManagedBy = AppPrefix + "managed-by"
	AppPartOf    = AppPrefix + "part-of"
	AppVersion   = AppPrefix + "version"

	// LabelPolicy is the name of the BridgePolicy an object belongs to.
	LabelPolicy = Prefix + "policy"
	// LabelSlot is the slot of a Deployment, its pods and their BridgeReplicas.
	LabelSlot = Prefix + "slot"
	// LabelPool is the name of the AccountPool an object belongs to.
	LabelPool = Prefix + "pool"
)

// Values of the App labels.
const (
	AppComponentProxy        = "proxy"
	AppManagedByValue        = "causeway-operator"
	AppPartOfValue           = "causeway"
	FieldOwnerSlots          = "causeway-slots"
	FieldOwnerReplicas       = "causeway-replicas"
	FieldOwnerRoute          = "causeway-route"
	FieldOwnerConfig         = "causeway-config"
	FieldOwnerAccess         = "causeway-access"
	FieldOwnerActivate       = "causeway-activation"
	FieldOwnerRollout        = "causeway-rollout"
	FieldOwnerStatus         = "causeway-status"
	FieldOwnerReplicaObjects = "causeway-replica-objects"
)

// Annotations on objects that the operator makes.
const (
	// AnnotationRevision is the revision of a slot's Deployment.
	AnnotationRevision = Prefix + "revision"
	// AnnotationHashVersion is the version of the algorithm behind AnnotationRevision.
	AnnotationHashVersion = Prefix + "hash-version"
	// AnnotationConfigHash is the hash of the bundle a ConfigMap holds.
	AnnotationConfigHash = Prefix + "config-hash"
	// AnnotationCredentialsHash is the hash of the credentials document; on a
	// pod it makes the kubelet sync the mounted Secret at once.
	AnnotationCredentialsHash = Prefix + "credentials-hash"
	// AnnotationPromotedAt is when the slot became active, RFC 3339.
	AnnotationPromotedAt = Prefix + "promoted-at"
	// AnnotationStartedAt is when the slot became a candidate, RFC 3339.
	AnnotationStartedAt = Prefix + "started-at"
	// AnnotationReadyAt is when the candidate began to wait for its promotion, RFC 3339.
	AnnotationReadyAt = Prefix + "ready-at"
	// AnnotationHandoverAt is when authority was asked for the slot, RFC 3339.
	AnnotationHandoverAt = Prefix + "handover-at"
	// AnnotationVacantAt is when the slot before had given authority up, RFC 3339.
	AnnotationVacantAt = Prefix + "vacant-at"
	// AnnotationDrainingAt is when the slot ceased to get traffic, RFC 3339.
	AnnotationDrainingAt = Prefix + "draining-at"
	// AnnotationDrainedAt is when the slot was done with its streams, RFC 3339.
	AnnotationDrainedAt = Prefix + "drained-at"
	// AnnotationEmptiedAt is when the slot was given up, RFC 3339.
	AnnotationEmptiedAt = Prefix + "emptied-at"
	// AnnotationFailedRevision is a revision that is not tried again, and
	// AnnotationFailedReason why.
	AnnotationFailedRevision = Prefix + "failed-revision"
	AnnotationFailedReason   = Prefix + "failed-reason"
	// AnnotationActiveSlot, on the Service of the clients, is the slot it is for.
	AnnotationActiveSlot = Prefix + "active-slot"
	// AnnotationEpoch, on the activation Lease, is the fencing epoch.
	AnnotationEpoch = Prefix + "epoch"
	// AnnotationNextHolder, on the activation Lease, is the slot that shall take over.
	AnnotationNextHolder = Prefix + "next-holder"
)

// MaxForcedCircuits bounds the entries of AnnotationForceCircuits.
const MaxForcedCircuits = 16

// MaxResetToken bounds the value of AnnotationResetCircuits, and what names the
// wish in the value of AnnotationResetCooldowns.
const MaxResetToken = 64

// Annotations that a user sets on a BridgePolicy. The value names its target, so
// that a stale annotation does nothing; the operator never removes one.
const (
	AnnotationPromote     = Prefix + "promote"
	AnnotationAbort       = Prefix + "abort"
	AnnotationRollbackTo  = Prefix + "rollback-to"
	AnnotationRestartedAt = Prefix + "restarted-at"
	// AnnotationResetCircuits closes the retry circuits of all sessions and the
	// breakers of all routes, once for each new value: up to MaxResetToken letters,
	// digits and any of . _ : + -, the time for example. What opens later stays
	// open under the same value.
	AnnotationResetCircuits = Prefix + "reset-circuits"
	// AnnotationForceCircuits holds the breakers of routes open or closed until a
	// time, by ROUTE=STATE@TIME, several with commas between them: ROUTE as in
	// status, or its host alone for all routes of a host; STATE Open or Closed; TIME
	// in RFC 3339, of which a proxy follows at most the next 24 hours.
	AnnotationForceCircuits = Prefix + "force-circuits"
	AnnotationCutDrain      = Prefix + "cut-drain"
)

// AnnotationResetCooldowns, which a user sets on an AccountPool, ends the
// cool-downs of its accounts in all proxies, once for each new value: a text as
// for AnnotationResetCircuits for all accounts, or ACCOUNT=TEXT for one of them.
const AnnotationResetCooldowns = Prefix + "reset-cooldowns"
