package account

import (
	"slices"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
)

// entry is the live half of an account. It outlives configurations: counters
// and cool-downs belong to the name.
type entry struct {
	account Account
	// written is what the configuration says of it.
	written bundle.Account
	// present is false for an account that the configuration no longer has but
	// that live turns or cool-downs still refer to.
	present  bool
	inflight int
	// granted is the registry's cursor at the last turn; 0 = there was none.
	granted uint64
	// pace is how often a turn ends.
	pace bulkhead.Meter
	// requests and tokens are limits per minute.
	requests, tokens bucket

	cooling coolDowns
	// probe is the one turn that tries whether a limit still holds; nil = none.
	probe     *Lease
	ejection  ejection
	health    health
	eventless eventless
	usage     usage
	// distrust: a good turn has disproved the usage document, which may repeat its
	// mistake until it tells something new.
	distrust bool
	// succeeded is when a turn went well last.
	succeeded time.Time
	lacks     []lack
	permits   permits
}

// lack is a model that the upstream does not serve on an account.
type lack struct {
	model string
	until time.Time
}

func newEntry() *entry { return &entry{cooling: coolDowns{}} }

// apply takes over one configuration; see limit.
func (e *entry) apply(a bundle.Account, c bundle.Credential) {
	if e.account.Credential != c {
		// The rejection was about the old credential, and so is what the plan lacks.
		delete(e.cooling, ReasonAuthRejected)
		delete(e.cooling, ReasonDeactivated)
		e.lacks = nil
	}
	e.account = Account{Name: a.Name, Kind: a.Kind, MaxConcurrent: a.MaxConcurrent, Credential: c}
	e.written, e.present = a, true
}

// limit sets what this replica may spend of the account's limits. A Shared
// maxConcurrent is leased (see permits); limits per minute never are.
func (e *entry) limit(scope string, share Share, now time.Time) {
	if scope == scopePerReplica || scope == "" {
		share = Share{}
	}
	e.requests.setLimit(share.Of(int64(e.written.RequestsPerMinute)), now)
	e.tokens.setLimit(share.Of(int64(e.written.TokensPerMinute)), now)
	e.permits.share = int(share.Of(int64(e.written.MaxConcurrent)))
	if scope == scopePartitioned {
		e.account.MaxConcurrent = int(share.Of(int64(e.written.MaxConcurrent)))
	}
}

// Values of bundle.Pool.CapacityScope.
const (
	scopePerReplica  = "PerReplica"
	scopePartitioned = "Partitioned"
	scopeShared      = "Shared"
)

// probeEnded gives the probe back if nothing else has ended it: the turn said
// nothing about the limit, and the next one may try.
func (e *entry) probeEnded(l *Lease) {
	if e.probe == l {
		e.probe = nil
	}
}

// candidate judges the account at one moment, but for what depends on others (see
// limitEjections). cursor is the registry's.
func (e *entry) candidate(now time.Time, cursor uint64) Candidate {
	sum := e.usage.load(now)
	e.health.press(sum)
	c := Candidate{
		Name: e.account.Name, Inflight: e.inflight, MaxConcurrent: e.account.MaxConcurrent, NotBefore: e.notBefore(now),
		Models: e.written.Models, Lacks: e.lacking(now), Weight: e.written.Weight, Priority: e.written.Priority,
		Tier: e.health.tier(now), Pressed: e.health.pressed, Trial: e.health.due(now) && !e.health.pressed,
		LongUsed: sum.long, Reset: sum.longReset, Idle: never, Full: e.permits.used(e.inflight),
	}
	if c.Reset.IsZero() {
		c.Reset = sum.shortReset
	}
	if e.granted != 0 {
		c.Idle = cursor - e.granted
	}
	c.State, c.Reason, c.Until = e.state(now)
	switch {
	case c.State == Usable:
		c.Ejected = e.ejection.end(now)
	case byLimit(c.Reason):
		c.Probe = e.probe == nil && e.enabled() && e.cooling.probeDue(now)
	}
	return c
}

func (e *entry) enabled() bool {
	return e.written.State == bundle.AccountEnabled || e.written.State == ""
}

func (e *entry) state(now time.Time) (state, reason string, until time.Time) {
	reason, until = e.cooling.deciding(now)
	switch {
	case e.written.State == bundle.AccountDisabled:
		return Disabled, "", time.Time{}
	case e.account.Credential.Bearer() == "":
		return Unknown, ReasonNoCredential, time.Time{}
	case reason != "":
		return stateOf(reason), reason, until
	case e.written.State == bundle.AccountDraining:
		return Draining, "", time.Time{}
	case e.enabled():
		return Usable, "", time.Time{}
	default:
		// A newer operator may know states that we do not; taking turns then
		// would be a guess.
		return Unknown, "", time.Time{}
	}
}

// notBefore is when the limits per minute let the next turn through; zero = now.
func (e *entry) notBefore(now time.Time) time.Time {
	at := e.requests.readyAt(1, now)
	if t := e.tokens.readyAt(tiny, now); t.After(at) {
		at = t
	}
	if !at.After(now) {
		return time.Time{}
	}
	return at
}

// lacksTime is how long it is believed that a plan does not have a model; plans
// and models change.
const lacksTime = time.Hour

// maxLacks bounds what is remembered; the oldest goes.
const maxLacks = 32

func (e *entry) lack(model string, now time.Time) {
	e.lacks = slices.DeleteFunc(e.lacks, func(l lack) bool { return l.model == model || !l.until.After(now) })
	if len(e.lacks) == maxLacks {
		e.lacks = e.lacks[1:]
	}
	e.lacks = append(e.lacks, lack{model, now.Add(lacksTime)})
}

func (e *entry) lacking(now time.Time) []string {
	var models []string
	for _, l := range e.lacks {
		if l.until.After(now) {
			models = append(models, l.model)
		}
	}
	return models
}

// wakeAt is the next moment at which the account may take a turn that it does not
// take now, though nobody calls; zero = none.
func (e *entry) wakeAt(now time.Time) (at time.Time) {
	_, until := e.cooling.deciding(now)
	for _, t := range [...]time.Time{until, e.cooling.nextProbe(now), e.ejection.until, e.notBefore(now)} {
		if t.After(now) {
			at = earlier(at, t)
		}
	}
	for _, l := range e.lacks {
		if l.until.After(now) {
			at = earlier(at, l.until)
		}
	}
	return at
}

func (e *entry) forgettable(now time.Time) bool {
	reason, _ := e.cooling.deciding(now)
	return !e.present && e.inflight == 0 && reason == ""
}
