package session

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/account"
)

// listening is a registry of accounts that notes what it is told.
type listening struct {
	*account.Registry
	mu   sync.Mutex
	told []string
}

func (l *listening) note(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, what)
}

func (l *listening) Acquire(ctx context.Context, w account.Want) (*account.Lease, error) {
	return l.Registry.Acquire(ctx, w)
}

func (l *listening) Eventless(name string) { l.note("eventless " + name); l.Registry.Eventless(name) }
func (l *listening) Failed(name string)    { l.note("failed " + name); l.Registry.Failed(name) }
func (l *listening) Lacks(name, model string) {
	l.note("lacks " + model)
	l.Registry.Lacks(name, model)
}
func (l *listening) Observe(name string, u account.Usage) {
	l.note("usage")
	l.Registry.Observe(name, u)
}

// What an attempt means for its account reaches the account, and nothing else does.
func TestAnAccountHearsWhatConcernsIt(t *testing.T) {
	const limits = `{"type":"codex.rate_limits","rate_limits":{"primary":{"used_percent":40,"window_minutes":300,"reset_at":4102444800}}}`
	for name, tc := range map[string]struct {
		anchored bool
		events   []any
		want     []string
	}{
		"a turn that went well":       {false, []any{created("r1"), completed("r1")}, nil},
		"a cut without an event":      {false, []any{errReset}, []string{"eventless a"}},
		"a cut in the midst":          {false, []any{created("r1"), text, errReset}, []string{"eventless a"}},
		"B48: a clean close":          {false, []any{errClean, errClean, errClean}, nil},
		"a cut on an anchor of ours":  {true, []any{errReset}, nil},
		"B112: an overload":           {false, []any{overloadedError}, nil},
		"a model that the plan lacks": {false, []any{`{"type":"error","status":400,"error":{"message":"The 'm' model is not supported when using Codex with a ChatGPT account."}}`}, []string{"lacks m"}},
		"a refusal of this account":   {false, []any{`{"type":"error","status":403,"error":{"type":"permission_error","message":"no"}}`}, []string{"failed a"}},
		"B46: the windows, in band":   {false, []any{limits, created("r1"), completed("r1")}, []string{"usage"}},
	} {
		t.Run(name, func(t *testing.T) {
			heard := &listening{}
			o := setUp{provider: bundle.ProviderChatGPT, accounts: []string{"a"}, firstEvent: 120, services: func(s *Services) {
				heard.Registry = s.Accounts.(*account.Registry)
				s.Accounts = heard
			}}
			inBubbleOf(t, o, func(b *bench) {
				ask := body
				if tc.anchored {
					b.anchored("t")
					ask = conversation(1)
				}
				a := b.ask("t", ask)
				for _, e := range tc.events {
					b.in(e)
					pass(maxPause)
				}
				if !slices.Equal(heard.told, tc.want) {
					t.Fatalf("told %q, want %q", heard.told, tc.want)
				}
				a.detach()
			})
		})
	}
}

// Tokens are counted as the upstream says, once a response.
func TestTokensAreSpent(t *testing.T) {
	o := ofAll("a")
	inBubbleOf(t, o, func(b *bench) {
		rt := *b.runtime
		rt.Bundle.Pool.Accounts = slices.Clone(rt.Bundle.Pool.Accounts)
		rt.Bundle.Pool.Quotas = []bundle.Quota{{Name: "day", Unit: "Tokens", Window: "Day", Limit: 1000, SoftLimitPercent: 100}}
		b.accounts.Update(&rt)
		b.ask("t", body)
		b.in(created("r1"), `{"type":"response.completed","response":{"id":"r1","output":[],"usage":{"total_tokens":1000}}}`)
		if code := b.ask("u", body).code(); code != "usage_limit_reached" {
			t.Fatalf("%q: the budget of the pool is spent", code)
		}
	})
}
