package session

import (
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
)

// StrikeClass is how an attempt failed without any sign of life.
type StrikeClass uint8

// Classes of strikes.
const (
	StrikeNone       StrikeClass = iota
	StrikeIncomplete             // the connection broke, or the upstream answered with a failure of its own
	StrikeSilence                // no first event in time
	StrikeCleanClose             // the upstream said good-bye without an answer
)

var strikeNames = [...]string{"", "StreamIncomplete", "IdleTimeout", "CleanClose"}

func (c StrikeClass) String() string { return strikeNames[c] }

// poisons says whether the class can be an anchor's fault. An upstream that
// closes in good order says nothing about the anchor.
func (c StrikeClass) poisons() bool { return c == StrikeIncomplete || c == StrikeSilence }

// Policy is what a CircuitPolicy says about the circuit of a session key.
type Policy struct {
	// Threshold is how many strikes in a row open the circuit; 0 = never.
	Threshold     int
	Base, Max     time.Duration
	CleanCloseMax time.Duration
	// ProbeLease is how long a probe is waited for that nobody renews.
	ProbeLease time.Duration
	// Life is how long strikes count.
	Life time.Duration
	// Eventless is how many silent attempts in a row make an anchor suspect.
	Eventless int
	// Retain is how long an untouched record is kept.
	Retain time.Duration
}

// PolicyOf reads the policy of a bundle, where every number is effective.
func PolicyOf(c bundle.Circuit) Policy {
	s := func(n int) time.Duration { return time.Duration(n) * time.Second }
	r, q := c.RetryCircuit, c.Quarantine
	return Policy{
		Threshold: r.FailureThreshold, Base: s(r.BaseBackoffSeconds), Max: s(r.MaxBackoffSeconds),
		CleanCloseMax: s(r.CleanCloseMaxBackoffSeconds), ProbeLease: s(r.HalfOpenLeaseSeconds), Life: s(r.StateTTLSeconds),
		Eventless: q.EventlessThreshold, Retain: s(q.RetainSeconds),
	}
}

// Backoff is how long the circuit stays open after the given number of strikes:
// the base at the threshold, doubled with each strike after it, up to the
// maximum; less after a clean close.
func (p Policy) Backoff(strikes int, class StrikeClass) time.Duration {
	if p.Threshold < 1 || strikes < p.Threshold {
		return 0
	}
	d := p.Base
	for range strikes - p.Threshold {
		if d >= p.Max {
			break
		}
		d *= 2
	}
	d = min(d, p.Max)
	if class == StrikeCleanClose {
		d = min(d, p.CleanCloseMax)
	}
	return d
}

// eventlessWindow is how long a silent attempt counts as one of several in a
// row.
const eventlessWindow = 10 * time.Minute

// Health is the retry circuit of a session key: the strikes in a row and what
// has become of them.
type Health struct {
	Strikes  int
	Class    StrikeClass // of the newest strike
	StruckAt time.Time   // when it was
	// StruckSequence is the attempt of the newest strike.
	StruckSequence int64
	// Blamed is the anchor that every strike was made with; empty = they have
	// none in common.
	Blamed string
	// Struck are the attempts that struck last, so that none does twice.
	Struck []string
	// Eventless counts silent attempts in a row, the last at EventlessAt.
	Eventless   int
	EventlessAt time.Time
	Probe       *Probe
	// MinGeneration: sockets below it are not used again.
	MinGeneration uint64
	// Denied are anchors that the upstream said it does not know, the newest last.
	Denied []string
	// Sequence numbers the attempts of the key as they are sent.
	Sequence int64
	// Cleared is the newest attempt that proved that the key works: what was sent
	// before it does not strike.
	Cleared int64
	// Reset is the last wish of a user to close the circuit that was followed.
	Reset string
}

// Probe is the one attempt that a half-open circuit lets through.
type Probe struct {
	// Token names the owner: its turn.
	Token string
	// Until is when it is given up if its owner does not renew it.
	Until time.Time
	// Created: the upstream took it, so that others are let through as well.
	Created bool
}

// ProbeEvent changes the probe. Only the owner of the token can.
type ProbeEvent struct {
	Token string
	Do    ProbeAction
	// Until is set for ProbeTaken and ProbeRenewed.
	Until time.Time
	// Policy is set for ProbeTaken.
	Policy Policy
	// Early lets it be taken before the cool-down is over.
	Early bool
}

// ProbeAction is what happens to a probe.
type ProbeAction uint8

// Actions.
const (
	ProbeTaken ProbeAction = iota
	ProbeRenewed
	ProbeProved   // response.created came
	ProbeReturned // it ended without a verdict on the key
)

// probe applies an action, if it is legal.
func (h Health) probe(e ProbeEvent, now time.Time) (Health, bool) {
	if e.Do == ProbeTaken {
		state, _ := h.Circuit(e.Policy, now)
		if early := e.Early && state == CircuitOpen; state != CircuitHalfOpen && !early {
			return h, false
		}
		h.Probe = &Probe{Token: e.Token, Until: e.Until}
		return h, true
	}
	if h.Probe == nil || h.Probe.Token != e.Token {
		return h, false
	}
	p := *h.Probe
	switch e.Do {
	case ProbeRenewed:
		p.Until = e.Until
	case ProbeProved:
		if p.Created {
			return h, false
		}
		p.Created = true
	case ProbeReturned:
		h.Probe = nil
		return h, true
	case ProbeTaken:
	}
	h.Probe = &p
	return h, true
}

// struck is the health after one more strike.
func (h Health) struck(s Struck, now time.Time) Health {
	if s.Policy.Life > 0 && now.Sub(h.StruckAt) > s.Policy.Life {
		h.Strikes, h.Blamed = 0, ""
	}
	if h.Strikes == 0 {
		h.Blamed = s.Anchor
	} else if h.Blamed != s.Anchor {
		h.Blamed = ""
	}
	h.Strikes++
	h.Class, h.StruckAt, h.StruckSequence = s.Class, now, max(h.StruckSequence, s.Sequence)
	h.Struck = lastFew(h.Struck, s.Attempt)
	switch {
	case s.Class != StrikeSilence:
		h.Eventless = 0
	case now.Sub(h.EventlessAt) > eventlessWindow:
		h.Eventless, h.EventlessAt = 1, now
	default:
		h.Eventless, h.EventlessAt = h.Eventless+1, now
	}
	if h.Probe != nil && h.Probe.Token == s.Turn {
		h.Probe = nil
	}
	return h
}

// settled is the health after an attempt has proved that the key works, or after
// the cause of its strikes was taken away.
func (h Health) settled(sequence int64) Health {
	h.Strikes, h.Class, h.StruckAt, h.Blamed = 0, StrikeNone, time.Time{}, ""
	h.Eventless, h.EventlessAt, h.Probe = 0, time.Time{}, nil
	h.Cleared = max(h.Cleared, sequence)
	return h
}

// reset closes the circuit on a user's wish, once for each wish.
func (h Health) reset(wish string) (Health, bool) {
	if wish == h.Reset {
		return h, false
	}
	h = h.settled(h.Sequence)
	h.Reset = wish
	return h, true
}

// CircuitState is what a circuit does with the next turn.
type CircuitState uint8

// States of a circuit.
const (
	CircuitClosed CircuitState = iota
	CircuitOpen
	CircuitHalfOpen // the next turn is the probe
	CircuitProbing  // a probe is out
)

var circuitNames = [...]string{"closed", "open", "half_open", "probing"}

func (s CircuitState) String() string { return circuitNames[s] }

// Circuit derives the state; it is never stored. The time is when it ends by
// itself: the end of the cool-down, or of the probe's lease.
func (h Health) Circuit(p Policy, now time.Time) (CircuitState, time.Time) {
	if p.Threshold < 1 || h.Strikes < p.Threshold || p.Life > 0 && now.Sub(h.StruckAt) > p.Life {
		return CircuitClosed, time.Time{}
	}
	probing := h.Probe != nil && now.Before(h.Probe.Until)
	until := h.StruckAt.Add(p.Backoff(h.Strikes, h.Class))
	switch {
	case probing && h.Probe.Created:
		return CircuitClosed, time.Time{}
	case probing:
		return CircuitProbing, h.Probe.Until
	case now.Before(until):
		return CircuitOpen, until
	}
	return CircuitHalfOpen, time.Time{}
}

// Admission is what the circuit says to one turn.
type Admission struct {
	// Probe: the turn goes as the probe.
	Probe bool
	// Early: it may be taken before the cool-down is over.
	Early bool
	// Refusal is the reason if the turn is not let through, and After how long the
	// timer that refuses still runs.
	Refusal string
	After   time.Duration
}

// Reasons of a suppression.
const (
	ReasonCooldown = "hard_key_cooldown"
	ReasonHalfOpen = "hard_key_half_open"
)

// Admit judges a turn. evades says that it goes without the anchor that all
// strikes were made with, so that it is another experiment.
func (h Health) Admit(p Policy, evades bool, now time.Time) Admission {
	state, until := h.Circuit(p, now)
	switch state {
	case CircuitClosed:
		return Admission{}
	case CircuitHalfOpen:
		return Admission{Probe: true}
	case CircuitOpen:
		if evades {
			return Admission{Probe: true, Early: true}
		}
		return Admission{Refusal: ReasonCooldown, After: until.Sub(now)}
	case CircuitProbing:
	}
	return Admission{Refusal: ReasonHalfOpen, After: until.Sub(now)}
}
