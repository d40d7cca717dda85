package session

import (
	"testing"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/outcome"
)

// Each reason of the API stands for its kinds, and for no other.
func TestRetryOnAllowsItsReasonAlone(t *testing.T) {
	for word, kinds := range map[string][]outcome.Kind{
		"ConnectFailure":   {outcome.DNSFailed, outcome.ConnectFailed, outcome.TLSFailed, outcome.UpgradeFailed, outcome.NotSent},
		"Status429":        {outcome.RateLimited, outcome.QuotaExhausted, outcome.EdgeLimited},
		"Status503":        {outcome.Overloaded, outcome.ModelAtCapacity},
		"StreamIncomplete": {outcome.CleanClose},
		"IdleTimeout":      {outcome.FirstEventTimeout},
	} {
		only := RetryPolicyOf(bundle.RetryCircuit{MaxAttempts: 5, RetryOn: []string{word}})
		others := RetryPolicy{MaxAttempts: 5, On: anyRetry.On &^ retryReasons[word]}
		for _, k := range kinds {
			turn := TurnState{Attempts: 1, Budget: true}
			if !only.allows(RecoverOtherAccount, k, turn) {
				t.Errorf("%s does not allow %s", word, k)
			}
			if others.allows(RecoverOtherAccount, k, turn) {
				t.Errorf("%s is allowed without %s", k, word)
			}
		}
	}
	for _, k := range []outcome.Kind{outcome.AnchorDenied, outcome.ConnectionLimit, outcome.NoWebSocket, outcome.AuthRejected} {
		if !(RetryPolicy{}).allows(RecoverWhole, k, TurnState{}) {
			t.Errorf("%s is what the protocol asks for; no policy forbids it", k)
		}
	}
}

func TestMaxAttemptsOfATurn(t *testing.T) {
	for _, tc := range []struct {
		kind     outcome.Kind
		recovery Recovery
		limit    int
		attempts int
		want     bool
	}{
		{outcome.Overloaded, RecoverAnyAccount, 2, 1, true},
		{outcome.Overloaded, RecoverAnyAccount, 2, 2, false},
		{outcome.Overloaded, RecoverAnyAccount, 1, 1, false},
		{outcome.FirstEventTimeout, RecoverOtherAccount, 1, 1, false},
		{outcome.CleanClose, RecoverAfterPause, 2, 2, true},
		{outcome.CleanClose, RecoverAfterPause, 2, 3, false},
		{outcome.RateLimited, RecoverOtherAccount, 1, 1, true}, // a choice of the wrong account
		{outcome.ConnectFailed, RecoverRedial, 1, 1, true},     // nothing left
	} {
		p := RetryPolicy{MaxAttempts: tc.limit, On: anyRetry.On}
		if got := p.allows(tc.recovery, tc.kind, TurnState{Attempts: tc.attempts, Budget: true}); got != tc.want {
			t.Errorf("%s, attempt %d of %d: %v", tc.kind, tc.attempts, tc.limit, got)
		}
	}
	if anyRetry.allows(RecoverAnyAccount, outcome.Overloaded, TurnState{Attempts: 1}) {
		t.Error("sent again beyond the budget")
	}
}

// While an upstream is ill, turns that are sent again add a bounded share.
func TestRetryBudget(t *testing.T) {
	var b retryBudget
	now := time.Unix(1000, 0)
	for range 1000 {
		b.turn(now)
	}
	again := 0
	for b.leaves(20, now) {
		b.spend(now)
		again++
	}
	if again != 200 {
		t.Errorf("%d of 1000 turns were sent again, want a fifth", again)
	}
	if b.leaves(0, now) {
		t.Error("budget 0")
	}
	if b.leaves(20, now.Add(budgetWindow/2)) {
		t.Error("half a window later everything is forgotten")
	}
	if !b.leaves(20, now.Add(2*budgetWindow)) {
		t.Error("the budget does not come back")
	}
	var quiet retryBudget
	for range budgetFloor {
		if !quiet.leaves(20, now) {
			t.Fatal("a few turns of an idle night may always be sent again")
		}
		quiet.spend(now)
	}
	if quiet.leaves(20, now) {
		t.Error("the floor has no end")
	}
}
