// Package usage asks the ChatGPT backend how much of its quota windows each
// account has used, so that accounts without traffic are known as well, and so
// that a quota that came back is not waited for. Turns never wait for it.
//
// What an answer means (judge) and when the next question is due (plan) is pure.
package usage

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/proxy/internal/account"
)

// Interval is the least time between two questions about one account; up to a
// fifth is added, so that replicas and accounts do not ask in step.
const (
	Interval = 5 * time.Minute
	jitter   = 0.2
	// again is when a rejection is looked at a second time: between two answers a
	// login may have been renewed.
	again = 30 * time.Second
	// spread is the time within which the first questions are asked.
	spread = 30 * time.Second
	// patience bounds one question, MaxBody its answer.
	patience = 20 * time.Second
	MaxBody  = 256 << 10
)

// Answer is what came back.
type Answer struct {
	Status int
	// Header reads a response header; nil = there are none.
	Header func(name string) string
	// Body is up to MaxBody bytes of it.
	Body []byte
}

// Asker makes the call. It must not retry, and must end with ctx. HTTP is one.
type Asker interface {
	Ask(ctx context.Context, a account.Account) (Answer, error)
}

// Sink takes in what was found out; account.Registry is one.
type Sink interface {
	Observe(name string, u account.Usage)
	CoolDown(name string, until time.Time, reason string)
}

// Options of a Poller.
type Options struct {
	// Accounts lists those to ask about now: of the ChatGPT provider, enabled, with a
	// login. It is called before each question.
	Accounts func() []account.Account
	Asker    Asker
	Sink     Sink
	Clock    clock.Clock
	Log      *slog.Logger
}

// Poller asks, one question at a time.
type Poller struct {
	options Options
	known   map[string]*state
}

// New makes a poller; Run works.
func New(o Options) *Poller { return &Poller{options: o, known: map[string]*state{}} }

// Run asks until ctx ends.
func (p *Poller) Run(ctx context.Context) {
	for ctx.Err() == nil {
		accounts := p.options.Accounts()
		next, due := plan(accounts, p.known, p.options.Clock.Now(), rand.Float64)
		if next != nil {
			p.ask(ctx, *next, accounts)
			continue
		}
		pause := p.options.Clock.NewTimer(due)
		select {
		case <-ctx.Done():
		case <-pause.C():
		}
		pause.Stop()
	}
}

// state is what is remembered of one account.
type state struct {
	due time.Time
	// credential is what the account was asked with last, by its bearer.
	credential string
	// rejections in a row of this credential.
	rejections int
	// answered: there is a usage document for this account.
	answered bool
}

// idle is when accounts are listed again though no question is due: some may be
// new.
const idle = time.Minute

// plan says which account to ask about now, or how long to rest. It forgets those
// that are gone.
func plan(accounts []account.Account, known map[string]*state, now time.Time, random func() float64) (*account.Account, time.Duration) {
	listed := map[string]bool{}
	var next *account.Account
	var due time.Time
	for i := range accounts {
		a := &accounts[i]
		listed[a.Name] = true
		s, ok := known[a.Name]
		if !ok {
			s = &state{due: now.Add(time.Duration(random() * float64(spread)))}
			known[a.Name] = s
		}
		if bearer := a.Credential.Bearer(); bearer != s.credential {
			s.credential, s.rejections = bearer, 0
		}
		if next == nil || s.due.Before(due) {
			next, due = a, s.due
		}
	}
	for name := range known {
		if !listed[name] {
			delete(known, name)
		}
	}
	switch {
	case next == nil:
		return nil, idle
	case due.After(now):
		return nil, min(due.Sub(now), idle)
	default:
		return next, 0
	}
}

// ask puts one question and takes in the answer.
func (p *Poller) ask(ctx context.Context, a account.Account, accounts []account.Account) {
	s := p.known[a.Name]
	answer, err := p.question(ctx, a)
	if ctx.Err() != nil {
		return
	}
	now := p.options.Clock.Now()
	s.due = now.Add(time.Duration((1 + jitter*rand.Float64()) * float64(Interval))) //nolint:gosec // spreads load
	if err != nil {
		p.options.Log.DebugContext(ctx, "Usage is not known", "account", a, "error", err)
		return
	}
	v := judge(answer, now, s.rejections, p.answers(accounts))
	s.rejections = v.rejections
	s.answered = s.answered || answer.Status == statusOK
	if v.after > 0 {
		s.due = now.Add(v.after)
	}
	if v.usage.Known() {
		p.options.Sink.Observe(a.Name, v.usage)
	}
	if v.reason != "" && p.still(a) {
		p.options.Log.WarnContext(ctx, "The usage endpoint rejects an account", "account", a, "reason", v.reason, "status", answer.Status)
		p.options.Sink.CoolDown(a.Name, v.until, v.reason)
	}
}

// still says whether the account has the credential that was asked with: what is
// said of an older one is of no use.
func (p *Poller) still(a account.Account) bool {
	return slices.ContainsFunc(p.options.Accounts(), func(now account.Account) bool {
		return now.Name == a.Name && now.Credential == a.Credential
	})
}

// answers says whether the endpoint is known to exist.
func (p *Poller) answers(accounts []account.Account) bool {
	for _, a := range accounts {
		if s, ok := p.known[a.Name]; ok && s.answered {
			return true
		}
	}
	return false
}

func (p *Poller) question(ctx context.Context, a account.Account) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := p.options.Asker.Ask(ctx, a)
	if err != nil {
		return Answer{}, fmt.Errorf("asking about account %s: %w", a.Name, err)
	}
	if answer.Header == nil {
		answer.Header = func(string) string { return "" }
	}
	return answer, nil
}
