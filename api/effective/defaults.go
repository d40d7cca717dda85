package effective

import (
	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// Base URLs of the public providers; type Generic has none.
const (
	EndpointOpenAIPlatform = "https://api.openai.com/v1"
	EndpointChatGPT        = "https://chatgpt.com/backend-api/codex"
)

// Ports of a proxy; they are part of the contract with the operator and cannot
// be changed by a manifest.
const (
	PortData = 8080
	PortPeer = 8081
	PortOps  = 9090
)

// Defaults of an AccountPool. The comments of the API types repeat all numbers of
// this file as "Unset means"; a test compares the two.
const (
	defaultAccountState     = v1alpha1.AccountEnabled
	defaultWeight           = 100
	defaultPriority         = 0
	defaultStrategy         = v1alpha1.StrategyLeastLoaded
	defaultCapacityScope    = v1alpha1.CapacityPerReplica
	defaultSoftLimitPercent = 100
)

// defaultCircuit is the built-in profile: what a CircuitPolicy that says nothing
// means. The numbers are the ones proposed by the design for coding agents:
// patient with the model, quick with a dead connection.
func defaultCircuit() bundle.Circuit {
	return bundle.Circuit{
		RetryCircuit: bundle.RetryCircuit{
			MaxAttempts:                 2,
			BudgetPercent:               20,
			FailureThreshold:            2,
			BaseBackoffSeconds:          60,
			MaxBackoffSeconds:           600,
			CleanCloseMaxBackoffSeconds: 30,
			HalfOpenLeaseSeconds:        60,
			StateTTLSeconds:             3600,
			RetryOn:                     texts(retryReasons),
		},
		Breaker: bundle.Breaker{
			Scope:               string(v1alpha1.BreakerRoute),
			ConsecutiveFailures: 5,
			WindowSeconds:       60,
			MinSamples:          20,
			FailurePercent:      50,
			MinDistinctAccounts: 2,
			MinDistinctCallers:  2,
			OpenSeconds:         15,
			MaxOpenSeconds:      300,
			HalfOpenMaxCalls:    1,
			SuccessThreshold:    2,
			ProbeVerdictSeconds: 30,
			CountedFailures:     texts(countedFailures),
		},
		Quarantine: bundle.Quarantine{
			EventlessThreshold: 2,
			RetainSeconds:      3600,
		},
		Ejection: bundle.Ejection{
			ConsecutiveFailures: 3,
			BaseSeconds:         30,
			MaxSeconds:          600,
			MaxEjectPercent:     50,
		},
		Bulkheads: DefaultBulkheads(),
		Deadlines: bundle.Deadlines{
			ConnectSeconds:        5,
			TLSSeconds:            5,
			ResponseHeaderSeconds: 60,
			FirstEventSeconds:     120,
			IdleSeconds:           300,
			KeepaliveSeconds:      15,
			RequestSeconds:        0,
			CallerMaxSeconds:      7200,
			CancelGraceSeconds:    1,
		},
	}
}

// lanes are all lanes, in the order in which a bundle lists them.
var lanes = []v1alpha1.Lane{
	v1alpha1.LaneHTTP, v1alpha1.LaneWebSocket, v1alpha1.LaneCompact, v1alpha1.LaneMedia, v1alpha1.LaneBackground,
}

// defaultQueueTimeoutSeconds is the admission wait of the design's table of
// deadlines: a coding agent that got a 503 after half a minute tries again.
const defaultQueueTimeoutSeconds = 30

// DefaultBulkheads are the limits of every lane that nobody has limited, all of
// them finite, in the order of a bundle. A queue holds twice what may run: with
// turns of 15 s or less the last in it is served within the queue timeout.
//
//   - HTTP, WebSocket: 200 + 400 are the design's numbers for a pool. Turns of
//     both kinds cost the same, and which of them a client speaks is its choice.
//   - Media: 8 + 16, the design's. An image takes a minute and tens of megabytes.
//   - Compact: 32 + 64. A session compacts once in dozens of turns, so that a
//     sixth of the turns is ample; it carries the whole history of one, so that it
//     must not take the memory of all.
//   - Background: 16 + 32. A list of models takes a second and every agent asks
//     for one when it starts; a fleet that starts at once is served within the
//     queue timeout.
func DefaultBulkheads() []bundle.Bulkhead {
	concurrent := map[v1alpha1.Lane]int{
		v1alpha1.LaneHTTP: 200, v1alpha1.LaneWebSocket: 200, v1alpha1.LaneCompact: 32, v1alpha1.LaneMedia: 8, v1alpha1.LaneBackground: 16,
	}
	out := make([]bundle.Bulkhead, 0, len(lanes))
	for _, lane := range lanes {
		out = append(out, bundle.Bulkhead{
			Lane: string(lane), MaxConcurrent: concurrent[lane], MaxQueued: 2 * concurrent[lane],
			QueueTimeoutSeconds: defaultQueueTimeoutSeconds,
		})
	}
	return out
}

// defaultSettings are the defaults of a BridgePolicy.
func defaultSettings() Settings {
	return Settings{
		Management:         v1alpha1.ManagementActive,
		UpgradePolicy:      v1alpha1.UpgradeFollowOperator,
		Replicas:           2,
		RunAsUser:          65532,
		FSGroup:            65532,
		ServiceType:        v1alpha1.ServiceClusterIP,
		ServicePort:        PortData,
		ExposePreview:      v1alpha1.SwitchDisabled,
		RolloutType:        v1alpha1.RolloutBlueGreen,
		Promotion:          v1alpha1.PromotionAutomatic,
		ReadySeconds:       15,
		OverlapSeconds:     15,
		RetainSeconds:      900,
		ProgressSeconds:    600,
		DrainDeadline:      21600,
		HoldSeconds:        30,
		LeaseSeconds:       30,
		RenewSeconds:       20,
		RetrySeconds:       5,
		ForceAfterSeconds:  120,
		TargetCPUPercent:   70,
		DrainSoftSeconds:   600,
		PodGraceSeconds:    900,
		PreStopSeconds:     15,
		EndpointLagSeconds: 15,
		ClientsMode:        v1alpha1.ClientsRequired,
		StoreType:          v1alpha1.StoreMemory,
		StoreTLS:           v1alpha1.SwitchDisabled,
		ReportingMode:      v1alpha1.ReportingObjects,
		ReportSeconds:      15,
	}
}

// podGraceReserve is what a pod needs, in seconds, after it has left the
// endpoints: 30 to finish short turns, 10 to report and exit.
const podGraceReserve = 40

var (
	retryReasons = []v1alpha1.RetryReason{
		v1alpha1.RetryConnectFailure, v1alpha1.RetryStatus429, v1alpha1.RetryStatus503,
		v1alpha1.RetryStreamIncomplete, v1alpha1.RetryIdleTimeout,
	}
	countedFailures = []v1alpha1.CountedFailure{
		v1alpha1.CountConnectFailure, v1alpha1.CountTLSFailure, v1alpha1.CountStatus5xx,
		v1alpha1.CountFirstEventTimeout, v1alpha1.CountProtocolError,
	}
)
