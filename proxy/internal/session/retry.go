package session

import (
	"sync"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/outcome"
)

// RetryPolicy is what a CircuitPolicy says about the attempts of one turn.
type RetryPolicy struct {
	// MaxAttempts of a turn, the first included; 0 = no limit of the policy's.
	MaxAttempts int
	// Percent of the turns of late that may be sent again.
	Percent int
	// On are the reasons that allow another attempt.
	On RetryReasons
}

// RetryReasons is a set of reasons.
type RetryReasons uint8

// Reasons for another attempt; see CircuitPolicy.spec.retryCircuit.retryOn.
const (
	OnConnectFailure RetryReasons = 1 << iota
	OnStatus429
	OnStatus503
	OnStreamIncomplete
	OnIdleTimeout
)

// retryReasons are the words of the API.
var retryReasons = map[string]RetryReasons{
	"ConnectFailure": OnConnectFailure, "Status429": OnStatus429, "Status503": OnStatus503,
	"StreamIncomplete": OnStreamIncomplete, "IdleTimeout": OnIdleTimeout,
}

// RetryPolicyOf reads the policy of a bundle. A reason of a newer operator is not
// known here and allows nothing.
func RetryPolicyOf(r bundle.RetryCircuit) RetryPolicy {
	p := RetryPolicy{MaxAttempts: r.MaxAttempts, Percent: r.BudgetPercent}
	for _, word := range r.RetryOn {
		p.On |= retryReasons[word]
	}
	return p
}

// reasonOf is why an attempt of this kind would be followed by another; 0 = the
// protocol asks for it, and no policy can forbid it: the anchor is gone, the socket
// is too old, there is none, or a credential was refused.
func reasonOf(k outcome.Kind) RetryReasons {
	switch k {
	case outcome.NotSent, outcome.UpgradeFailed, outcome.DNSFailed, outcome.ConnectFailed, outcome.TLSFailed, outcome.ProxyFailed:
		return OnConnectFailure
	case outcome.RateLimited, outcome.QuotaExhausted, outcome.EdgeLimited:
		return OnStatus429
	case outcome.Overloaded, outcome.ModelAtCapacity, outcome.Unavailable:
		return OnStatus503
	case outcome.CleanClose, outcome.CutEventless, outcome.WriteCut:
		return OnStreamIncomplete
	case outcome.FirstEventTimeout, outcome.HeaderTimeout:
		return OnIdleTimeout
	default:
		return 0
	}
}

// spends says whether a recovery counts as another attempt. What an account
// refused for a reason of its own was a choice of the wrong account, what did not
// leave was none, and what the protocol asks for is the same attempt in another
// form.
func spends(r Recovery, k outcome.Kind) bool {
	switch r {
	case RecoverNone, RecoverRedial, RecoverHTTP:
		return false
	case RecoverOtherAccount, RecoverAnyAccount, RecoverWhole, RecoverAfterPause:
	}
	reason := reasonOf(k)
	if reason == OnStatus429 {
		return k == outcome.EdgeLimited
	}
	return reason != 0 && reason != OnConnectFailure
}

// allows says whether the policy lets the turn be sent again. A clean close comes
// before the upstream has taken the request: such replays have a bound of their own.
func (p RetryPolicy) allows(r Recovery, k outcome.Kind, t TurnState) bool {
	reason := reasonOf(k)
	if r == RecoverNone || reason == 0 {
		return true
	}
	if p.On&reason == 0 {
		return false
	}
	if !spends(r, k) {
		return true
	}
	attempts := t.Attempts
	if k == outcome.CleanClose {
		attempts--
	}
	return t.Budget && (p.MaxAttempts == 0 || attempts < p.MaxAttempts)
}

const (
	// budgetWindow is what "of late" means for the retry budget.
	budgetWindow = 60 * time.Second
	// budgetFloor is how many turns of a window may be sent again however few there
	// are: one failed turn of an idle night is no storm.
	budgetFloor = 10
)

// retryBudget bounds the load that turns sent again add while an upstream is ill.
// It is safe for concurrent use.
type retryBudget struct {
	mu    sync.Mutex // guards all below
	start time.Time
	// turns and again are those of this window and of the one before it.
	turns, again [2]int
}

// turn counts a turn that is sent for the first time.
func (b *retryBudget) turn(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.roll(now)
	b.turns[0]++
}

// leaves says whether one more turn may be sent again.
func (b *retryBudget) leaves(percent int, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.roll(now)
	if percent <= 0 {
		return false
	}
	again := b.again[0] + b.again[1]
	return again < budgetFloor || again*100 < percent*(b.turns[0]+b.turns[1])
}

// spend counts a turn that is sent again.
func (b *retryBudget) spend(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.roll(now)
	b.again[0]++
}

func (b *retryBudget) roll(now time.Time) {
	switch passed := now.Sub(b.start); {
	case passed >= budgetWindow:
		b.turns, b.again = [2]int{}, [2]int{}
		b.start = now
	case passed >= budgetWindow/2:
		b.turns, b.again = [2]int{0, b.turns[0]}, [2]int{0, b.again[0]}
		b.start = now
	}
}
