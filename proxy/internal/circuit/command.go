package circuit

import "time"

// hintLife is how long the word of a sibling counts.
const hintLife = 30 * time.Second

// Hint says that a sibling's circuit of the same route is open: for a while one
// failure is enough here. What is closed stays closed; each replica decides for
// itself. A circuit that closes forgets it.
func (b *Breaker) Hint(now time.Time) { b.hinted = now.Add(hintLife) }

// Force holds the circuit open or closed until a time, whatever happens. What
// runs meanwhile counts nowhere.
func (b *Breaker) Force(to State, until time.Time) {
	from := b.shown()
	again := b.forced != nil && from == to
	b.forced, b.forcedUntil = &to, until
	if !again {
		b.note(Change{From: from, To: to, Reason: byForce, Until: until})
	}
}

// Release ends a force, if there is one.
func (b *Breaker) Release() {
	if b.forced == nil {
		return
	}
	from := *b.forced
	b.forced = nil
	b.note(Change{From: from, To: b.state, Reason: byForceOver})
}

// Reset closes the circuit and forgets everything but a force; what is under way
// counts nowhere.
func (b *Breaker) Reset(now time.Time) {
	b.opened = 0
	b.close(byReset, now)
}

// restore opens a circuit that another process left open.
func (b *Breaker) restore(p Policy, until time.Time, opened int, now time.Time) {
	b.opened = min(max(opened, 1), maxOpened)
	b.until = until
	if latest := now.Add(p.MaxOpen); b.until.After(latest) {
		b.until = latest // of a clock that is ahead
	}
	b.openedBy = byRestore
	b.move(Open, byRestore)
	b.Tick(p, now)
}

// clamp shortens an open time that a new policy does not allow.
func (b *Breaker) clamp(p Policy, now time.Time) {
	if latest := now.Add(p.MaxOpen); b.state == Open && b.until.After(latest) {
		b.until = latest
	}
}

// shown is the state that others see.
func (b *Breaker) shown() State {
	if b.forced != nil {
		return *b.forced
	}
	return b.state
}

// reason is why the circuit is not closed, or why it is though it would not be.
func (b *Breaker) reason() string {
	switch {
	case b.forced != nil:
		return byForce
	case b.state == Closed:
		return ""
	default:
		return b.openedBy
	}
}

// idle says whether nothing would be lost with the circuit.
func (b *Breaker) idle() bool { return b.state == Closed && b.forced == nil && b.ends.run.failed == 0 }
