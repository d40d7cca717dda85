package deadline

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Headers of a budget.
const (
	// TimeoutHeader is how a caller asks for a deadline, for the whole turn: whole
	// milliseconds.
	TimeoutHeader = "X-Causeway-Timeout-Ms"
	// ClampedHeader of an answer says "1" where callerMaxSeconds is less than what
	// the caller asked for.
	ClampedHeader = "X-Causeway-Deadline-Clamped"
)

// sdkHeaders say how long an SDK waits: in seconds, for the head of an answer or
// between two reads. Of an answer in one piece that is the whole; of a stream it
// says nothing once the head was sent, so that it must not end one.
var sdkHeaders = []string{"X-Stainless-Timeout", "X-Stainless-Read-Timeout"}

// farFuture is longer than any turn; more is not told apart.
const farFuture = 365 * 24 * time.Hour

// Budget is the time that a turn has in all, measured from its arrival. The zero
// value is without end. It is a value; nothing changes one.
type Budget struct {
	due    time.Time // zero = none
	kind   Kind
	source Source
	// Clamped says that the caller asked for more than callerMaxSeconds.
	Clamped bool
}

// NewBudget is the budget of a turn that arrived at start: the shorter one of the
// policy's total and what the caller's header asks for. get returns a header's
// value. The error says what is wrong with TimeoutHeader; what an SDK sends of
// itself is ignored if it makes no sense.
func NewBudget(get func(string) string, stream bool, l Limits, start time.Time) (Budget, error) {
	asked, err := askedFor(get, stream)
	if err != nil {
		return Budget{}, err
	}
	var b Budget
	if l.Total > 0 {
		b.due, b.kind, b.source = start.Add(l.Total), Total, Operator
	}
	if asked == 0 {
		return b, nil
	}
	own := Budget{due: start.Add(asked), kind: Total, source: Caller}
	if l.CallerMax > 0 && asked > l.CallerMax {
		own = Budget{due: start.Add(l.CallerMax), kind: CallerMax, source: Operator}
		b.Clamped = true
	}
	return b.shorter(own), nil
}

// askedFor is the deadline that a caller sent; 0 = none.
func askedFor(get func(string) string, stream bool) (time.Duration, error) {
	if text := strings.TrimSpace(get(TimeoutHeader)); text != "" {
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil || ms < 1 {
			return 0, fmt.Errorf("%s must be whole milliseconds, at least 1", strings.ToLower(TimeoutHeader))
		}
		return milliseconds(ms), nil
	}
	if stream {
		return 0, nil
	}
	for _, name := range sdkHeaders {
		seconds, err := strconv.ParseFloat(strings.TrimSpace(get(name)), 64)
		if err == nil && seconds > 0 { // false for NaN
			return time.Duration(min(seconds*float64(time.Second), float64(farFuture))), nil
		}
	}
	return 0, nil
}

func milliseconds(ms int64) time.Duration {
	return time.Duration(min(ms, farFuture.Milliseconds())) * time.Millisecond
}

// shorter is whichever of two budgets ends first; of two that end together, b.
func (b Budget) shorter(other Budget) Budget {
	if b.due.IsZero() || !other.due.IsZero() && other.due.Before(b.due) {
		other.Clamped = b.Clamped || other.Clamped
		return other
	}
	return b
}

// Remaining is what is left, 0 if nothing is; false = the budget has no end.
func (b Budget) Remaining(now time.Time) (time.Duration, bool) {
	if b.due.IsZero() {
		return 0, false
	}
	return max(0, b.due.Sub(now)), true
}

// Due is when the budget ends; zero = never.
func (b Budget) Due() time.Time { return b.due }

// Header is what is left, in whole milliseconds, for the next replica, made when
// the turn is sent there: a field of its signed envelope. Empty = the budget has no
// end. A part of a millisecond is lost with each hop, never gained.
func (b Budget) Header(now time.Time) string {
	left, bounded := b.Remaining(now)
	if !bounded {
		return ""
	}
	value := strconv.FormatInt(left.Milliseconds(), 10)
	if b.source == Caller {
		value += callerMark
	}
	return value
}

// callerMark keeps it known on the way that the limit is the caller's.
const callerMark = ";source=caller"

// FromHeader is what another replica has left of a turn that arrived from it at
// now, or own, whichever is shorter: a replica's own limits hold whatever it is
// told. A header that makes no sense is a replica's fault and changes nothing.
func FromHeader(value string, own Budget, now time.Time) Budget {
	number, marked := strings.CutSuffix(strings.TrimSpace(value), callerMark)
	ms, err := strconv.ParseInt(number, 10, 64)
	if err != nil || ms < 0 {
		return own
	}
	received := Budget{due: now.Add(milliseconds(ms)), kind: Total, source: Operator}
	if marked {
		received.source = Caller
	}
	return own.shorter(received)
}

// Limit is the moment at which a phase of a turn ends unless it is done.
type Limit struct {
	At time.Time
	// Kind and Source are what an error that says so carries.
	Kind   Kind
	Source Source
	// Phase is where the turn was, whichever limit it was that ran out.
	Phase Kind
}

// Phase is the limit of the phase k that began at since and may take d (0 = no
// limit of its own): d or the whole budget, whichever ends first. false = none.
//
// Where a caller's deadline ends while the turn waits for something, the error
// names what it waited for: the limit was the caller's, and that nothing came in
// it is no evidence against anyone.
func (b Budget) Phase(k Kind, since time.Time, d time.Duration) (Limit, bool) {
	l := Limit{Kind: k, Source: Operator, Phase: k}
	if d > 0 {
		l.At = since.Add(d)
	}
	if b.due.IsZero() || d > 0 && !b.due.Before(l.At) {
		return l, d > 0
	}
	l.At, l.Source = b.due, b.source
	if b.source != Caller || k == StreamIdle {
		l.Kind = b.kind
	}
	return l, true
}
