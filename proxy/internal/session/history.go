package session

import (
	"context"
	"log/slog"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
)

// maxHistory is how many attempts of a session are kept for a look at it.
const maxHistory = 8

// history keeps the last attempts of a session.
type history struct{ attempts []past }

// past is an attempt after its verdict. It is small: thousands of idle sessions
// have some.
type past struct {
	turn       string
	attempt    int
	at         time.Time
	account    string
	class      affinity.Class
	provenance Provenance
	// facts are FactKinds, one byte each; said is what the last one says beyond its
	// kind.
	facts    string
	said     string
	row      string
	strike   StrikeClass
	recovery Recovery
}

// newPast keeps what is shown of an attempt.
func newPast(f *flight, v Verdict, recovery Recovery, now time.Time) past {
	p := past{turn: f.turn.ID, attempt: f.attempt, at: now, class: f.plan.Class, provenance: f.plan.Provenance,
		row: v.Row, strike: v.Strike, recovery: recovery}
	if f.lease != nil {
		p.account = f.lease.Account().Name
	}
	kinds := make([]byte, len(f.facts))
	for i, fact := range f.facts {
		kinds[i] = byte(fact.Kind)
	}
	p.facts = string(kinds)
	if n := len(f.facts); n > 0 && f.facts[n-1].String() != f.facts[n-1].Kind.String() {
		p.said = f.facts[n-1].String()
	}
	return p
}

// words are the facts as they are shown.
func (p past) words() []string {
	words := make([]string, len(p.facts))
	for i := range len(p.facts) {
		words[i] = FactKind(p.facts[i]).String()
	}
	if p.said != "" {
		words[len(words)-1] = p.said
	}
	return words
}

func (h *history) add(p past) {
	if len(h.attempts) >= maxHistory {
		copy(h.attempts, h.attempts[1:])
		h.attempts = h.attempts[:len(h.attempts)-1]
	}
	h.attempts = append(h.attempts, p)
}

// remember keeps an attempt and tells the log of its verdict: one event each.
func (a *actor) remember(f *flight, v Verdict, recovery Recovery) {
	p := newPast(f, v, recovery, a.now())
	a.history.add(p)
	level := slog.LevelInfo
	if v.Settles && recovery == RecoverNone {
		level = slog.LevelDebug // what goes well is in the metrics
	}
	log := a.log()
	if !log.Enabled(context.Background(), level) {
		return
	}
	state, _ := a.record.Health.Circuit(a.policy, p.at)
	log.LogAttrs(context.Background(), level, "Attempt ended",
		slog.String("turn", p.turn), slog.Int("attempt", p.attempt), slog.String("account", p.account),
		slog.String("verdict", v.Row), slog.String("strike", v.Strike.String()), slog.Int("strikes", a.record.Health.Strikes),
		slog.String("circuit", state.String()), slog.String("class", p.class.String()),
		slog.String("anchor", p.provenance.String()), slog.String("anchor_status", anchorWord(a.record)),
		slog.Any("facts", p.words()), slog.String("recovery", recovery.String()),
		slog.Duration("waited", f.sent.Sub(f.submitted)), slog.Duration("ran", p.at.Sub(f.sent)))
}

func anchorWord(r Record) string {
	if r.Anchor == nil {
		return "none"
	}
	return r.Anchor.Status.String()
}

// detail is the session for the admin port.
func (a *actor) detail() Detail {
	now := a.now()
	state, until := a.record.Health.Circuit(a.policy, now)
	d := Detail{View: View{
		Key: a.key.Short(), Kind: a.key.Kind.String(), State: a.stateWord(), Account: a.record.Account, Model: a.record.Model,
		Anchor: anchorWord(a.record), Strikes: a.record.Health.Strikes, Circuit: state.String(), Turns: len(a.flights) + len(a.arriving),
		Owned: a.own.valid(), Epoch: a.own.held.Epoch, Version: a.record.Version, UpdatedAt: a.record.UpdatedAt,
	}, Attempts: make([]AttemptView, 0, len(a.history.attempts))}
	if !until.IsZero() {
		d.CircuitUntil = &until
	}
	for _, p := range a.history.attempts {
		d.Attempts = append(d.Attempts, AttemptView{
			Turn: p.turn, Attempt: p.attempt, At: p.at, Account: p.account, Class: p.class.String(),
			Anchor: p.provenance.String(), Facts: p.words(), Verdict: p.row,
			Strike: p.strike.String(), Recovery: p.recovery.String(),
		})
	}
	return d
}

func (a *actor) stateWord() string {
	switch {
	case a.closing:
		return "draining"
	case len(a.flights) > 0 || len(a.arriving) > 0:
		return "active"
	}
	return "idle"
}

// notice is what the registry shows of a session that is not well.
type notice struct {
	circuit     CircuitState
	until       time.Time // of the cool-down, zero = the circuit is closed
	class       StrikeClass
	quarantined bool
	cause       AnchorCause
	since       time.Time
}

// show tells the registry what has changed about the session's health.
func (a *actor) show() {
	n := notice{}
	now := a.now()
	h := a.record.Health
	if a.own.kept && a.policy.Threshold > 0 && h.Strikes >= a.policy.Threshold {
		n.circuit, _ = h.Circuit(a.policy, now)
		n.until, n.class = h.StruckAt.Add(a.policy.Backoff(h.Strikes, h.Class)), h.Class
	}
	if a.record.Quarantined() {
		n.quarantined, n.cause, n.since = true, a.record.Anchor.Cause, a.record.Anchor.Since
	}
	if n == a.shown {
		return
	}
	a.shown = n
	a.registry.noteHealth(a, n)
}
