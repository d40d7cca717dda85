package session

import (
	"fmt"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// calamities happen to replicas, the store and the accounts until all is healed.
func (s *sim) calamities() {
	if s.healed {
		return
	}
	s.later(s.upTo(2*s.plan.calamity), nil, "calamity", func() {
		if !s.healed {
			s.calamity()
		}
		s.calamities()
	})
}

func (s *sim) calamity() {
	p := s.pods[s.rng.IntN(len(s.pods))].proc
	if p.dead {
		return // it is about to come back
	}
	switch n := s.rng.IntN(15); {
	case n < 2:
		p.crash()
	case n < 5 && !p.paused:
		p.pause(time.Second + s.upTo(2*time.Minute))
	case n < 7 && !p.cut:
		p.cutOff(time.Second + s.upTo(2*time.Minute))
	case n == 7:
		s.counts["wipes"]++
		s.log("the store loses everything")
		s.shared.wipe()
	case n == 8 && !p.draining:
		p.drain(5*time.Second + s.upTo(time.Minute))
	case n == 9:
		token := fmt.Sprintf("reset %d", s.steps)
		for _, pod := range s.pods {
			s.soon(pod.proc, pod.proc.name+" resets circuits", func() { pod.proc.registry.ResetCircuits(token) })
		}
	case n < 13:
		s.up.mood, s.up.refusalMood, s.up.until = s.rng.IntN(19), s.rng.IntN(6), s.now.Add(s.upTo(3*time.Minute))
		s.log("the upstream is in mood %d until %s", s.up.mood, s.up.until)
	default:
		s.log("accounts forget")
		s.up.forget()
	}
}

// heal ends everything that goes wrong. What is broken already stays so.
func (s *sim) heal() {
	s.log("all faults stop")
	s.healed, s.healedAt = true, s.now
	s.plan.storeFaults, s.plan.vanish, s.plan.forks, s.plan.roam, s.plan.haste = 0, 0, 0, 0, 0
	s.plan.writeDelay = 10 * time.Millisecond
	s.plan.maxSessions = 0
	for _, pod := range s.pods {
		pod.proc.registry.services.MaxSessions = DefaultMaxSessions
		pod.proc.cut, pod.proc.failing = false, false
		if pod.proc.paused {
			pod.proc.resume()
		}
	}
}

// Limits of how long clients may wait when nothing is wrong any more: the longest
// cool-down of a circuit, that of an account, a lease of a replica that is gone, an
// unknown outcome, and the deadlines of attempts: six idle limits of a stream whose
// connection answers pings.
const (
	patienceAfter = 2 * time.Hour
	patienceSteps = 200_000
)

// simWatch follows one conversation after all faults have stopped.
type simWatch struct {
	served, failed, waited int
	idle                   bool
}

// pausing says whether the conversation has shown what it was asked for.
func (w *simWatch) pausing(t *simTalk) bool {
	w.idle = w.served >= 3
	return w.idle
}

// saw judges a turn after all faults and leases of lost replicas are over: the first
// may fail, as the one that finds out what is broken, those that follow are served
// at once. To be told to wait is no failure, if the time is named.
func (w *simWatch) saw(t *simTalk, a *simAsk) {
	s := t.sim
	if !a.healed || s.now.Sub(s.healedAt) < leaseTime+simRenewEvery {
		return // the key may still be with a replica that is gone
	}
	if a.proc.dead || a.proc.draining {
		return // the last of its drains is not over
	}
	if a.failure == nil && a.done == "completed" {
		w.served++
		if w.served == 3 {
			t.mustBuild(a)
		}
		return
	}
	why := a.done
	if a.failure != nil {
		why = a.failure.Error()
	}
	if f := a.failure; f != nil && f.RetryAfter > 0 && len(a.runs) == 0 {
		w.waited++
		full := f.Code == failure.Draining || f.Code == failure.OwnerUnavailable || f.Code == failure.QueueTimeout // of no session's own making
		s.must((w.served == 0 || full) && w.waited < 60, "waiting ends", "%s: %s", a.id, why)
		return
	}
	if last := s.up.responses[t.prev]; !a.whole && last != nil && (a.prev != "" && last.forgotten || last.http && !last.stored ||
		last.conn.listener.key.Kind.Lane()) {
		return // the client built on what the upstream or the session does not know
	}
	if n := len(a.runs); n > 0 && a.runs[n-1].outcome == "orphan" && !a.mended {
		return // it left a call open that no session knows of
	}
	w.failed++
	served, limit := 1, 1
	if t.style == styleAnchor || t.style == styleOutputs {
		// A delta finds out, and is told to start from the whole. The whole does not
		// wait where the last claim had failed, so that its delta meets the owner next.
		served, limit = 2, 2
	}
	s.must(w.served < served && w.failed <= limit, "a client is served within one turn after the cause is gone", "%s failed as number %d after %d served: %s",
		a.id, w.failed, w.served, why)
}

// mustBuild: in a quiet world a conversation builds on what its session knows.
func (t *simTalk) mustBuild(a *simAsk) {
	s := t.sim
	if t.style == styleAnchor || t.style == styleOutputs || t.known == 0 || a.recall || len(a.runs) == 0 {
		return
	}
	r := a.runs[len(a.runs)-1]
	last := s.up.responses[t.prev]
	if last == nil || last.account != r.conn.account || r.conn.http || last.http || r.conn.listener.key.Kind.Lane() {
		return
	}
	s.must(r.anchor == t.prev, "a conversation in a quiet world builds on its last response", "%s went with %q instead of %s", a.id, r.anchor, t.prev)
}
