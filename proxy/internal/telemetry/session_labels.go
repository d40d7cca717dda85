package telemetry

import "strings"

// indexIn is the place of a name, or -1, which is shown as "other". CamelCase, as
// in a status, is the same name.
func indexIn(names []string, name string) int {
	for i, n := range names {
		if n == name || strings.EqualFold(strings.ReplaceAll(n, "_", ""), name) {
			return i
		}
	}
	return -1
}

// StrikeClass is why a retry circuit counts an attempt against its session.
type StrikeClass int

// Classes of strikes.
const (
	// StrikeCleanClose is a close with code 1000 before any event.
	StrikeCleanClose StrikeClass = iota
	// StrikeIncomplete is any other end of the stream before any event.
	StrikeIncomplete
	// StrikeIdleTimeout is silence before any event.
	StrikeIdleTimeout
)

var strikeNames = []string{"clean_close", "stream_incomplete", "idle_timeout"}

func (c StrikeClass) String() string { return nameIn(strikeNames, int(c)) }

// StrikeClassOf is the class of that name.
func StrikeClassOf(name string) StrikeClass { return StrikeClass(indexIn(strikeNames, name)) }

// Suppression is why a turn was refused before it was dispatched. The client sees
// the same word as the reason of its error.
type Suppression int

// Suppressions.
const (
	// SuppressedCooldown: the session's circuit is open.
	SuppressedCooldown Suppression = iota
	// SuppressedHalfOpen: another turn is the probe.
	SuppressedHalfOpen
	// SuppressedAnchorDead: the turn builds on a response that the upstream lost.
	SuppressedAnchorDead
	// SuppressedAnchorUnknown: nobody knows the response that it builds on.
	SuppressedAnchorUnknown
	// SuppressedConnectionGone: that response went with its socket.
	SuppressedConnectionGone
	// SuppressedAbandoned: that response was never finished.
	SuppressedAbandoned
	// SuppressedOutcomeUnknown: the same turn may still be running.
	SuppressedOutcomeUnknown
	// SuppressedStore: the store that knows the session does not answer.
	SuppressedStore
	// SuppressedOwner: another proxy owns the session and could not be asked.
	SuppressedOwner
)

var suppressionNames = []string{"hard_key_cooldown", "hard_key_half_open", "anchor_dead", "anchor_unknown",
	"connection_gone", "abandoned", "outcome_unknown", "store", "owner"}

func (s Suppression) String() string { return nameIn(suppressionNames, int(s)) }

// SuppressionOf is the suppression of that name.
func SuppressionOf(name string) Suppression { return Suppression(indexIn(suppressionNames, name)) }

// ProbeOutcome is how the probe of a half-open circuit ended.
type ProbeOutcome int

// Outcomes of probes.
const (
	// ProbeClosed: the circuit is closed.
	ProbeClosed ProbeOutcome = iota
	// ProbeReopened: the probe was a strike.
	ProbeReopened
	// ProbeReturned: the probe proved nothing; the next turn takes it.
	ProbeReturned
)

var probeNames = []string{"closed", "reopened", "returned"}

func (o ProbeOutcome) String() string { return nameIn(probeNames, int(o)) }

// ProbeOutcomeOf is the outcome of that name.
func ProbeOutcomeOf(name string) ProbeOutcome { return ProbeOutcome(indexIn(probeNames, name)) }

// RetireCause is why an anchor is no longer used.
type RetireCause int

// Causes.
const (
	// RetiredDenied: the upstream said that it does not know it.
	RetiredDenied RetireCause = iota
	// RetiredWedged: the upstream worked on it and never created a response.
	RetiredWedged
	// RetiredEventless: silence.
	RetiredEventless
	// RetiredCircuitOpened: the circuit opened while it was in use.
	RetiredCircuitOpened
	// RetiredFailedAgain: it was suspect and failed once more.
	RetiredFailedAgain
)

// The words are those of the quarantine in a BridgeReplica.
var retireNames = []string{"anchor_denied", "wedged", "eventless", "circuit_opened", "failed_again"}

func (c RetireCause) String() string { return nameIn(retireNames, int(c)) }

// RetireCauseOf is the cause of that name.
func RetireCauseOf(name string) RetireCause { return RetireCause(indexIn(retireNames, name)) }

// Proof is what made it legal to run a turn again, or to answer it again.
type Proof int

// Proofs.
const (
	// ProofUnsubmitted: no byte of it had left.
	ProofUnsubmitted Proof = iota
	// ProofDenied: the upstream said that it did not run it.
	ProofDenied
	// ProofSilentAnchor: silence is how an upstream answers an anchor that it does
	// not know, and the whole went without it.
	ProofSilentAnchor
	// ProofNeutral: it runs the same on any account and connection.
	ProofNeutral
	// ProofTranscript: its whole answer is known; nothing ran again.
	ProofTranscript
)

var proofNames = []string{"unsubmitted", "denied", "silent_anchor", "neutral", "transcript"}

func (p Proof) String() string { return nameIn(proofNames, int(p)) }

// ProofOf is the proof of that name.
func ProofOf(name string) Proof { return Proof(indexIn(proofNames, name)) }

// StoreOp is what the store was asked for. Renewals have a gauge of their own.
type StoreOp int

// Operations of the store.
const (
	// StoreClaim makes this proxy the owner of a session.
	StoreClaim StoreOp = iota
	// StoreSave is any write; it is repeated until the store takes it.
	StoreSave
	// StoreAlias finds the session of a response or a turn state.
	StoreAlias
	// StoreTranscript reads the answer of a finished turn.
	StoreTranscript
	// StoreShare exchanges what replicas tell each other besides sessions.
	StoreShare
)

var storeOpNames = []string{"claim", "save", "alias", "transcript", "share"}

func (o StoreOp) String() string { return nameIn(storeOpNames, int(o)) }

// StoreOpOf is the operation of that name.
func StoreOpOf(name string) StoreOp { return StoreOp(indexIn(storeOpNames, name)) }

// ForwardOutcome is what became of a turn that was handed to another proxy.
type ForwardOutcome int

// Outcomes of forwards.
const (
	// ForwardNotDispatched: the other proxy was not reached.
	ForwardNotDispatched ForwardOutcome = iota
	// ForwardAmbiguous: the other proxy may have got it.
	ForwardAmbiguous
	// ForwardAcknowledged: the other proxy answered it.
	ForwardAcknowledged
	// ForwardRejected: the other proxy did not take it.
	ForwardRejected
)

var forwardNames = []string{"not_dispatched", "ambiguous", "acknowledged", "rejected"}

func (o ForwardOutcome) String() string { return nameIn(forwardNames, int(o)) }

// ForwardOutcomeOf is the outcome of that name.
func ForwardOutcomeOf(name string) ForwardOutcome {
	return ForwardOutcome(indexIn(forwardNames, name))
}
