package v1alpha1

// Bulkhead bounds one lane.
//
// +kubebuilder:validation:XValidation:rule="self.mode == 'Limited' ? has(self.maxConcurrent) : !has(self.maxConcurrent) && !has(self.maxQueued)",message="maxConcurrent must be set with mode Limited; mode Unlimited allows neither it nor maxQueued"
// +kubebuilder:validation:XValidation:rule="!has(self.maxQueued) || self.maxQueued == 0 || has(self.queueTimeoutSeconds)",message="queueTimeoutSeconds must be set if maxQueued is not 0: add it or set maxQueued to 0"
type Bulkhead struct {
	// lane is the kind of traffic: turns of clients that speak HTTP (and all that
	// has no lane of its own), turns of clients that speak WebSocket, compaction of
	// conversations, images, and lists of models.
	// +required
	Lane Lane `json:"lane"`

	// mode says whether the lane is bounded at all. An Unlimited lane is named in
	// the log of each proxy when it starts, and in the status of its BridgeReplica.
	// +required
	Mode BulkheadMode `json:"mode"`

	// maxConcurrent turns at once; required with mode Limited.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxConcurrent *int32 `json:"maxConcurrent,omitempty"`

	// maxQueued turns may wait; the places are shared fairly between clients. Unset
	// means what the lane has if it is not listed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MaxQueued *int32 `json:"maxQueued,omitempty"`

	// queueTimeoutSeconds is how long a turn may wait, for the lane or for an
	// account. Unset means 30.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=600
	QueueTimeoutSeconds *int32 `json:"queueTimeoutSeconds,omitempty"`
}

// Lane is a kind of traffic.
// +kubebuilder:validation:Enum=HTTP;WebSocket;Compact;Media;Background
// +kubebuilder:validation:MaxLength=10
type Lane string

// Values of Lane.
const (
	LaneHTTP       Lane = "HTTP"
	LaneWebSocket  Lane = "WebSocket"
	LaneCompact    Lane = "Compact"
	LaneMedia      Lane = "Media"
	LaneBackground Lane = "Background"
)

// BulkheadMode says whether a lane is bounded.
// +kubebuilder:validation:Enum=Limited;Unlimited
// +kubebuilder:validation:MaxLength=9
type BulkheadMode string

// Values of BulkheadMode.
const (
	BulkheadLimited   BulkheadMode = "Limited"
	BulkheadUnlimited BulkheadMode = "Unlimited"
)

// Deadlines bound the phases of a turn.
//
// +kubebuilder:validation:XValidation:rule="!has(self.keepaliveSeconds) || !has(self.idleSeconds) || self.keepaliveSeconds < self.idleSeconds",message="keepaliveSeconds must be less than idleSeconds: lower it or raise idleSeconds"
// +kubebuilder:validation:XValidation:rule="!has(self.connectSeconds) || !has(self.requestSeconds) || self.requestSeconds == 0 || self.connectSeconds < self.requestSeconds",message="connectSeconds must be less than requestSeconds: lower it, raise requestSeconds or set it to 0"
type Deadlines struct {
	// connectSeconds to open a TCP connection. Unset means 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=120
	ConnectSeconds *int32 `json:"connectSeconds,omitempty"`

	// tlsSeconds for the TLS handshake. Unset means 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=120
	TLSSeconds *int32 `json:"tlsSeconds,omitempty"`

	// responseHeaderSeconds until the upstream answers a request or an upgrade.
	// Unset means 60.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	ResponseHeaderSeconds *int32 `json:"responseHeaderSeconds,omitempty"`

	// firstEventSeconds until the first event of a turn. Unset means 120.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	FirstEventSeconds *int32 `json:"firstEventSeconds,omitempty"`

	// idleSeconds between two events of a turn. Unset means 300.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	IdleSeconds *int32 `json:"idleSeconds,omitempty"`

	// keepaliveSeconds of silence until the client gets a keepalive. Unset means 15.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	KeepaliveSeconds *int32 `json:"keepaliveSeconds,omitempty"`

	// requestSeconds for the whole turn; 0 means none for streams. Unset means 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	RequestSeconds *int32 `json:"requestSeconds,omitempty"`

	// callerMaxSeconds is the longest deadline a caller may ask for. Unset means
	// 7200.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	CallerMaxSeconds *int32 `json:"callerMaxSeconds,omitempty"`

	// cancelGraceSeconds after a client is gone until its turn is cancelled. Unset
	// means 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=60
	CancelGraceSeconds *int32 `json:"cancelGraceSeconds,omitempty"`
}
