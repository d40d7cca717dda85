package v1alpha1

// Condition types. Positive ones come first; those marked abnormal are absent
// while all is well.
const (
	// ConditionReady is the conjunction of the conditions that matter for use.
	ConditionReady = "Ready"
	// ConditionAccepted says whether the spec is valid with defaults applied.
	ConditionAccepted = "Accepted"
	// ConditionFullyEffective says whether every field that is set already has
	// its behaviour in this version. It is not part of Ready.
	ConditionFullyEffective = "FullyEffective"

	// ConditionSecretsResolved, of an AccountPool: all referenced keys were found.
	ConditionSecretsResolved = "SecretsResolved"
	// ConditionUsable, of an AccountPool: at least one account can take a turn.
	ConditionUsable = "Usable"
	// ConditionRefreshHealthy, of an AccountPool: logins can be refreshed.
	ConditionRefreshHealthy = "RefreshHealthy"

	// ConditionResolvedRefs, of a BridgePolicy: pool, circuit policy and client keys exist.
	ConditionResolvedRefs = "ResolvedRefs"
	// ConditionProgrammed, of a BridgePolicy: the proxies serve the wanted configuration.
	ConditionProgrammed = "Programmed"
	// ConditionAvailable, of a BridgePolicy: enough proxies are ready.
	ConditionAvailable = "Available"
	// ConditionActivated, of a BridgePolicy: the active slot holds the Lease.
	ConditionActivated = "Activated"
	// ConditionUpToDate, of a BridgePolicy: the active slot is the wanted one.
	ConditionUpToDate = "UpToDate"
	// ConditionUpstreamHealthy, of a BridgePolicy: no circuit is open.
	ConditionUpstreamHealthy = "UpstreamHealthy"
	// ConditionReportsFresh, of a BridgePolicy: the proxies' reports are recent.
	ConditionReportsFresh = "ReportsFresh"

	// ConditionPaused (abnormal): management is Paused.
	ConditionPaused = "Paused"
	// ConditionWarning (abnormal): the spec is valid and asks for something risky,
	// or an annotation cannot be used.
	ConditionWarning = "Warning"
	// ConditionReconciling (abnormal): work is under way; see kstatus.
	ConditionReconciling = "Reconciling"
	// ConditionStalled (abnormal): work cannot go on without a human; see kstatus.
	ConditionStalled = "Stalled"
)

// Reasons of Ready and Accepted.
const (
	ReasonReady             = "Ready"
	ReasonValid             = "Valid"
	ReasonInvalidSpec       = "InvalidSpec"
	ReasonInvariantViolated = "InvariantViolated"
	ReasonUnsupported       = "Unsupported"
	ReasonReservedLabel     = "ReservedLabel"
	ReasonAllEffective      = "AllEffective"
	ReasonNotYetEffective   = "NotYetEffective"
	ReasonOpenClients       = "OpenClients"
	ReasonMemoryStore       = "MemoryStoreNotShared"
	ReasonCapacityExceeded  = "CapacityExceeded"
	ReasonInvalidAnnotation = "InvalidAnnotation"
	ReasonSeveralWarnings   = "SeveralWarnings"
	ReasonPausedByUser      = "PausedByUser"
)

// Reasons of SecretsResolved; the same words explain a single account.
const (
	ReasonResolved       = "Resolved"
	ReasonSecretNotFound = "SecretNotFound"
	ReasonKeyNotFound    = "KeyNotFound"
	ReasonInvalidValue   = "InvalidValue"
	ReasonNotAllowed     = "NotAllowed"
)

// Reasons of Usable and RefreshHealthy.
const (
	ReasonAccountsUsable    = "AccountsUsable"
	ReasonNoAccountEnabled  = "NoAccountEnabled"
	ReasonAllCoolingDown    = "AllCoolingDown"
	ReasonAllReauthRequired = "AllReauthRequired"
	ReasonNoReports         = "NoReports"
	ReasonRefreshing        = "Refreshing"
	ReasonReauthRequired    = "ReauthRequired"
	ReasonIssuerUnreachable = "IssuerUnreachable"
	ReasonIssuerRefused     = "IssuerRefused"
	ReasonRefreshUncertain  = "RefreshUncertain"
	ReasonLoginPending      = "LoginPending"
	ReasonNotApplicable     = "NotApplicable"
)

// Reasons of ResolvedRefs, besides Resolved and SecretNotFound.
const (
	ReasonAccountPoolNotFound      = "AccountPoolNotFound"
	ReasonAccountPoolNotAccepted   = "AccountPoolNotAccepted"
	ReasonCircuitPolicyNotFound    = "CircuitPolicyNotFound"
	ReasonCircuitPolicyNotAccepted = "CircuitPolicyNotAccepted"
)

// Reasons of Programmed.
const (
	ReasonConfigAcknowledged = "ConfigAcknowledged"
	ReasonConfigPending      = "ConfigPending"
	ReasonConfigRejected     = "ConfigRejected"
	ReasonVersionSkew        = "VersionSkew"
)

// Reasons of Available.
const (
	ReasonMinimumReplicasReady = "MinimumReplicasReady"
	ReasonScaledToZero         = "ScaledToZero"
	ReasonNoReadyReplicas      = "NoReadyReplicas"
	ReasonImagePullFailed      = "ImagePullFailed"
	ReasonCrashLooping         = "CrashLooping"
	ReasonQuotaExceeded        = "QuotaExceeded"
	ReasonUnschedulable        = "Unschedulable"
)

// Reasons of Activated and UpToDate.
const (
	ReasonSlotHoldsLease     = "SlotHoldsLease"
	ReasonWaitingForRelease  = "WaitingForRelease"
	ReasonNoHolder           = "NoHolder"
	ReasonFenceViolation     = "FenceViolation"
	ReasonActiveSlotIsWanted = "ActiveSlotIsWanted"
	ReasonRolloutInProgress  = "RolloutInProgress"
	ReasonPromotionPending   = "PromotionPending"
	ReasonRolloutFailed      = "RolloutFailed"
	ReasonPaused             = "Paused"
)

// Reasons of UpstreamHealthy and ReportsFresh.
const (
	ReasonAllClear          = "AllClear"
	ReasonCircuitOpen       = "CircuitOpen"
	ReasonAccountsExhausted = "AccountsExhausted"
	ReasonFresh             = "Fresh"
	ReasonSomeStale         = "SomeStale"
)

// Reasons of Reconciling and Stalled, besides those above.
const (
	ReasonDraining                 = "Draining"
	ReasonWaitingForDrain          = "WaitingForDrain"
	ReasonWaitingForRefs           = "WaitingForRefs"
	ReasonProgressDeadlineExceeded = "ProgressDeadlineExceeded"
	ReasonAdoptionRefused          = "AdoptionRefused"
	ReasonForbidden                = "Forbidden"
)

// Reasons of events.
const (
	EventSlotCreated          = "SlotCreated"
	EventCandidateReady       = "CandidateReady"
	EventPromotionPending     = "PromotionPending"
	EventPromoted             = "Promoted"
	EventRolloutAborted       = "RolloutAborted"
	EventRolledBack           = "RolledBack"
	EventRolloutStalled       = "RolloutStalled"
	EventActivationRequested  = "ActivationRequested"
	EventActivationAcquired   = "ActivationAcquired"
	EventActivationLost       = "ActivationLost"
	EventActivationForced     = "ActivationForced"
	EventDrainStarted         = "DrainStarted"
	EventDrainCompleted       = "DrainCompleted"
	EventDrainDeadlineReached = "DrainDeadlineReached"
	EventDrainBlocksEviction  = "DrainBlocksEviction"
	EventConfigProgrammed     = "ConfigProgrammed"
	EventConfigRejected       = "ConfigRejected"
	EventAdoptionRefused      = "AdoptionRefused"
	EventRefsNotResolved      = "RefsNotResolved"
	EventSpecNotAccepted      = "SpecNotAccepted"
	EventSessionsNotMigrated  = "SessionsNotMigrated"
	EventAccountUnusable      = "AccountUnusable"
	EventAccountRecovered     = "AccountRecovered"
	EventReauthRequired       = "ReauthRequired"
	EventCircuitOpened        = "CircuitOpened"
	EventCircuitClosed        = "CircuitClosed"
)

// Actions of events: what was being done when the event arose.
const (
	ActionReconcile  = "Reconcile"
	ActionRollout    = "Rollout"
	ActionActivation = "Activation"
	ActionDrain      = "Drain"
	ActionConfig     = "Config"
	ActionResolve    = "Resolve"
)
