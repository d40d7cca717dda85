// Package affinity derives from a request, without any state, which session it
// belongs to and what its input is: session keys, payload classes and digests.
package affinity

// Kind says which fact of a request named its session.
type Kind uint8

// Kinds in the order of bridge precedence; lanes come after the kinds that a
// client can name.
const (
	KindRequest     Kind = iota // nothing named a session: the request stands alone
	KindPromptCache             // an explicit prompt_cache_key
	KindStickyThread
	KindCodexSession
	KindTurnState
	KindThread
	KindSession
	KindUnanchoredParallel // a second turn beside a busy session
	KindModelParallel      // the same session under another model
	KindRequestParallel    // the same session under another service tier
	KindSoftReroute        // a soft lane that left a saturated account
)

var kindNames = [...]string{
	KindRequest:            "request",
	KindPromptCache:        "prompt_cache",
	KindStickyThread:       "sticky_thread",
	KindCodexSession:       "codex_session",
	KindTurnState:          "turn_state_header",
	KindThread:             "thread_header",
	KindSession:            "session_header",
	KindUnanchoredParallel: "internal_unanchored_parallel",
	KindModelParallel:      "internal_model_parallel",
	KindRequestParallel:    "internal_request_parallel",
	KindSoftReroute:        "internal_soft_affinity_reroute",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Hard says whether the key is a promise of continuity: a hard session's state
// belongs to exactly one conversation.
func (k Kind) Hard() bool {
	switch k {
	case KindTurnState, KindThread, KindSession, KindUnanchoredParallel, KindModelParallel, KindRequestParallel:
		return true
	default:
		return false
	}
}

// Lane says whether the key was made by the proxy for one turn beside another.
func (k Kind) Lane() bool {
	switch k {
	case KindUnanchoredParallel, KindModelParallel, KindRequestParallel, KindSoftReroute:
		return true
	default:
		return false
	}
}
