package account

import "time"

// Tier is how well an account works; the selection takes from the best tier that
// has room.
type Tier int

// Tiers, best first.
const (
	Healthy Tier = iota
	// Probing: it was draining and has been left in quiet; good turns make it
	// healthy again.
	Probing
	// Sick takes turns only while no better account has room. (Draining is a state
	// that a user gives an account.)
	Sick
)

// String is the tier's name in status and logs.
func (t Tier) String() string {
	switch t {
	case Healthy:
		return "Healthy"
	case Probing:
		return "Probing"
	default:
		return "Sick"
	}
}

// Numbers of the tiers, those of bridge.md 8.3.
const (
	// errorWindow is how close errors have to be to say anything together.
	errorWindow = 60 * time.Second
	// errorsToSicken an account within errorWindow.
	errorsToSicken = 2
	// quietTime without errors until a sick account is tried, and between two turns
	// that are sent to it for that purpose while better accounts have room.
	quietTime = 60 * time.Second
	// successesToHeal a probing account.
	successesToHeal = 3
	// shortPressure and longPressure are the use of a window in percent from which
	// an account is spared; it is no more once it is relief below that.
	shortPressure, longPressure, relief = 85, 90, 5
)

// health is the tier of one account by its errors. The zero value is healthy. It
// neither reads the clock nor locks.
type health struct {
	sick bool
	// errors are the last ones since the last success, latest first.
	errors [errorsToSicken]time.Time
	// tried is when an account that is not healthy got its last trial turn.
	tried time.Time
	// successes since it fell sick or relapsed.
	successes int
	// pressed is whether a window of usage is nearly used up; see press.
	pressed bool
	// before is what blame changed, to take it back.
	before *health
}

// fail notes one error that the account is to blame for.
func (h *health) fail(now time.Time) {
	copy(h.errors[1:], h.errors[:])
	h.errors[0] = now
	oldest := h.errors[errorsToSicken-1]
	switch {
	case h.sick:
		h.successes = 0 // a relapse: the quiet time begins anew
	case !oldest.IsZero() && now.Sub(oldest) < errorWindow:
		h.sick, h.successes, h.tried = true, 0, now
	}
}

// blame notes as many errors as make an account sick; forgive takes them back if
// they turn out to be nobody's.
func (h *health) blame(now time.Time) {
	before := *h
	before.before = nil
	for range errorsToSicken {
		h.fail(now)
	}
	h.before = &before
}

func (h *health) forgive() {
	if h.before != nil {
		pressed := h.pressed
		*h = *h.before
		h.pressed = pressed
	}
}

// succeed notes a good turn.
func (h *health) succeed() {
	h.errors, h.before = [errorsToSicken]time.Time{}, nil
	if !h.sick {
		return
	}
	if h.successes++; h.successes >= successesToHeal {
		h.sick, h.successes, h.tried = false, 0, time.Time{}
	}
}

// tier by errors alone.
func (h *health) tier(now time.Time) Tier {
	switch {
	case !h.sick:
		return Healthy
	case now.Sub(h.errors[0]) >= quietTime: // the zero time is long ago
		return Probing
	default:
		return Sick
	}
}

// due says that a probing account should get a turn though better accounts have
// room: without one it would never heal.
func (h *health) due(now time.Time) bool {
	return h.tier(now) == Probing && now.Sub(h.tried) >= quietTime
}

// press judges the use of the windows with hysteresis: percentages that wander
// around the mark do not move an account to and fro.
func (h *health) press(l load) {
	mark := 0.0
	if h.pressed {
		mark = relief
	}
	h.pressed = l.short >= shortPressure-mark || l.long >= longPressure-mark
}

// Numbers of the signal from failures without any event, those of bridge.md 8.6.
const (
	eventlessWindow = 300 * time.Second
	eventlessLimit  = 3
)

// eventless counts the failures of one account in which nothing at all came back.
// One says nothing: sockets die.
type eventless struct {
	// times within the window that have not been used for a verdict yet.
	times []time.Time
	// last is the latest of all.
	last time.Time
}

// note takes in one failure and says whether it is the one too many.
func (e *eventless) note(now time.Time) bool {
	e.last = now
	kept := e.times[:0]
	for _, t := range e.times {
		if now.Sub(t) < eventlessWindow {
			kept = append(kept, t)
		}
	}
	e.times = append(kept, now)
	return len(e.times) >= eventlessLimit
}

func (e *eventless) clear() { e.times = e.times[:0] }

// recent says whether the account had one within the window.
func (e *eventless) recent(now time.Time) bool {
	return !e.last.IsZero() && now.Sub(e.last) < eventlessWindow
}

// most says whether failures that hit some accounts of a pool hit more than half
// of them, and so come from what they share.
func most(hit, accounts int) bool { return 2*hit > accounts }
