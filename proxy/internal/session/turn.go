package session

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
	"github.com/causeway-dev/causeway/proxy/internal/circuit"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/deadline"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// Turn is one client request as a session sees it. It does not change after
// Submit; its Outbox is how the session answers.
type Turn struct {
	ID      string
	Client  string
	Key     affinity.Key
	Header  http.Header
	Body    []byte
	Facts   affinity.Facts
	Runtime *config.Runtime
	// Owner is what is known of the client's own anchor, and Pin of its files. The
	// session asks once more where they disagree.
	Owner Owner
	Pin   Pin
	// TurnState is the token handed to the client; it becomes an alias of the
	// session. Echoed says that the client brought it, so that it continues a
	// turn of its own.
	TurnState string
	Echoed    bool
	// Transport HTTP forces a plain request: nothing names a session.
	Transport Transport
	// Fingerprint identifies the request within its session: the same request
	// sent again has the same one. Empty = it is not recognised again.
	Fingerprint string
	// Keyed: the client sent an Idempotency-Key, which Fingerprint digests. BodyDigest
	// tells its request from another one under the same key.
	Keyed      bool
	BodyDigest string
	// Stay says that the turn is served here even if another replica owns its key:
	// it came from there, could not be sent there, or its key is a connection of here.
	Stay bool
	// Lane is the kind of traffic that the turn is.
	Lane bulkhead.Lane
	// Limits bound its phases, Budget the whole of it.
	Limits deadline.Limits
	Budget deadline.Budget
	Out    *Outbox

	place    lanePlace
	at       handed      // where the turn is
	recorded atomic.Bool // its session wants to know whether the answer got through
}

// flight is a turn in its session, from submission to settlement. The actor
// alone touches it.
type flight struct {
	turn  *Turn
	stage stage
	needs Needs
	// cancel ends waiting for an account or a connection.
	cancel context.CancelFunc
	lease  *account.Lease
	link   *link
	// permit is the route's, for this attempt.
	permit *circuit.Permit

	attempt   int
	plan      Plan
	facts     []Fact
	transport Transport
	// excluded are the accounts that said no to this turn.
	excluded []string
	redialed bool
	// spent: the turn's one recovery after a dispatch is used up.
	spent bool
	// whole: the turn goes without an anchor from here on.
	whole       bool
	cleanCloses int
	resumeAt    time.Time // the end of a pause
	dispatches  int
	// attempts counts the dispatches as the policy does; see spends.
	attempts int
	// cooled is the end of the account's cool-down that this turn brought about.
	cooled time.Time
	// again: if no other account takes the turn, the same may be asked once more.
	again bool
	// sequence is the attempt's number in the record.
	sequence int64
	// probe says that the turn holds the key's probe, renewed at renewAt.
	probe   bool
	renewAt time.Time
	// recorded is the attempt in the turn's record; 0 = it has none.
	recorded int
	spool    spool
	// calls are the acting tool calls that the client got in this turn; before are
	// those it got when it sent the turn the last time and that were not met again.
	calls, before []affinity.Digest
	duplicate     bool
	// first is the first answer of an account that said no; it stands if all do.
	first *failure.Failure
	// reread: whose its anchor and its files are was asked once more.
	reread bool

	responseID string
	outputs    []affinity.Output
	// known is the input as the next turn's anchor will know it, taken when the
	// attempt was sent; the body is let go of with the first delivered event.
	known affinity.Known
	// held are events that say nothing yet, kept from the client until heldUntil;
	// shown: the client has seen the first, and nothing is held any more.
	held      []upstream.Event
	heldUntil time.Time
	shown     bool
	// inspected: an event behind response.created was looked at for its tag.
	inspected bool
	submitted time.Time
	sent      time.Time
	lastEvent time.Time
	// limit is the deadline that ended the attempt, if one did.
	limit deadline.Limit
	// expiring is when a deadline passed; it takes effect a moment later, so that
	// an event that had already arrived wins.
	expiring time.Time
	gone     bool
}

type stage uint8

const (
	stageWaiting   stage = iota // behind the turn before it
	stageLeasing                // for an account
	stageDialing                // for a connection
	stageQueued                 // for the write before it on the same connection
	stageSending                // the request is being written
	stageSent                   // until the response ends
	stagePausing                // before it is sent again
	stageRecalling              // its answer is read from the store
	stageRereading              // whose its anchor and files are is read from the store
	stageSettled
)

// name identifies the attempt.
func (f *flight) name() string { return f.turn.ID + "/" + strconv.Itoa(f.attempt) }

func (f *flight) note(kind FactKind) { f.facts = append(f.facts, Fact{Kind: kind}) }

// noteOnce keeps the fact list short: a thousand deltas are one fact.
func (f *flight) noteOnce(kind FactKind) {
	for i := len(f.facts) - 1; i >= 0; i-- {
		if f.facts[i].Kind == kind {
			return
		}
	}
	f.note(kind)
}

// link is one upstream connection of a session.
type link struct {
	conn      upstream.Conn
	account   string
	transport Transport
	// generation is unique in the process; anchors refer to it.
	generation uint64
	// writing: a request is being written; next is the flight that is written
	// after it. An upstream may answer before it has read a request to its end.
	writing bool
	next    *flight
	// uncreated is the flight that the next response.created belongs to.
	uncreated *flight
	// live are all flights on the link, in the order they were sent.
	live []*flight
	// tagged says that events name their response, so that several responses can
	// run on the link at once.
	tagged bool
	// done are the responses that ended last; their late events reach nobody.
	done []string
	// turns counts the turns sent; the header is fresh for the first alone.
	turns int
	// turnState is the upstream's own continuation token.
	turnState string
	// leaving says that no further turn goes out on it; until bounds its end.
	leaving bool
	until   time.Time
	ended   bool
}

func (l *link) remove(f *flight) {
	if l.uncreated == f {
		l.uncreated = nil
	}
	for i, other := range l.live {
		if other == f {
			l.live = slices.Delete(l.live, i, i+1)
			return
		}
	}
}

// free says whether a request can be sent now: no response is un-created, and
// either none runs or events say to which one they belong.
func (l *link) free() bool {
	return l.uncreated == nil && !l.writing && (len(l.live) == 0 || l.tagged)
}

// lighten lets go of the body once the turn cannot be sent again: a stream of
// minutes does not keep a request of megabytes.
func (t *Turn) lighten() {
	t.Body = nil
	t.Facts.Model, t.Facts.PreviousResponseID = clone(t.Facts.Model), clone(t.Facts.PreviousResponseID)
	t.Facts.PromptCacheKey, t.Facts.Input, t.Facts.Files = "", affinity.Input{}, nil
}
