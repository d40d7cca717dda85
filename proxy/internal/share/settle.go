package share

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/account"
)

// stamp identifies what is said of one cool-down, wherever it is told. Of two
// stamps the newer counts, on every replica: see newer.
type stamp struct {
	// seq counts what was said of this account and reason. Who says something new
	// goes one beyond the highest it knows; 0 = nothing was ever said.
	seq uint64
	// cleared: there is no cool-down any more, by a reset or because the account
	// worked.
	cleared bool
	// length is for how long it was set when it was set.
	length time.Duration
	// by is the process that said it.
	by string
}

// newer is a total order. Of what two replicas say without knowing of each other a
// cool-down counts more than its end, because the end is about an older one, and
// the longer counts more than the shorter. No clock of two machines is compared.
func newer(a, b stamp) bool {
	return cmp.Or(
		cmp.Compare(a.seq, b.seq),
		-compareBool(a.cleared, b.cleared),
		cmp.Compare(a.length, b.length),
		strings.Compare(a.by, b.by),
	) > 0
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// fact is a stamp as this replica holds it.
type fact struct {
	stamp
	// ends is when the cool-down is over, or when it need not be remembered any
	// more that it was cleared.
	ends time.Time
}

// until is the end of the cool-down that the fact is about, if it runs.
func (f fact) until(now time.Time) time.Time {
	if f.cleared || !f.ends.After(now) {
		return time.Time{}
	}
	return f.ends
}

// Settings of settle.
const (
	// slack is how far two ends may be apart to be the same: less is not worth
	// telling.
	slack = time.Second
	// clearedLife is for how long it is remembered at least that a cool-down was
	// cleared, grace how long what is over: what is said next goes beyond it.
	clearedLife = time.Minute
	grace       = time.Minute
)

// settle decides what holds of one cool-down. known is what held after the last
// exchange, local the end of the cool-down that this replica observes now (zero =
// none), told what the board says, if anything. Of what was known and what is told
// the newer holds; what is over by itself outlasts nothing that is not.
//
// What changed here since the last exchange is newer than what was known. If the
// board tells something new at the same time, the cool-down counts more than its
// end and the longer one more than the shorter.
func settle(known fact, local time.Time, told *fact, me string, now time.Time) fact {
	holds, learned := known, false
	if told != nil && told.stamp != known.stamp && told.ends.After(now) && (newer(told.stamp, known.stamp) || !known.ends.After(now)) {
		holds, learned = *told, true
	}
	if !local.After(now) {
		local = time.Time{}
	}
	if same(local, known.until(now), now) {
		return holds // nothing happened here
	}
	running, seq := holds.until(now), max(holds.seq, known.seq)+1
	switch {
	case local.IsZero() && (learned || running.IsZero()):
		return holds
	case local.IsZero():
		return fact{stamp{seq: seq, cleared: true, by: me}, later(running, now.Add(clearedLife))}
	case learned && !local.After(running.Add(slack)):
		return holds
	}
	return fact{stamp{seq: seq, length: local.Sub(now).Round(time.Millisecond), by: me}, local}
}

// same says whether two ends of cool-downs, zero = none, are as good as one.
func same(a, b, now time.Time) bool {
	if a.IsZero() {
		a = now
	}
	if b.IsZero() {
		b = now
	}
	return a.Sub(b).Abs() < slack
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// String is how a stamp is told; parseStamp reads it.
func (s stamp) String() string {
	kind := "cooling"
	if s.cleared {
		kind = "cleared"
	}
	return fmt.Sprintf("%d %s %d %s", s.seq, kind, s.length.Milliseconds(), s.by)
}

// maxSeq bounds what is believed: something else could not be exceeded any more.
const maxSeq = 1 << 48

func parseStamp(text string) (stamp, bool) {
	fields := strings.Split(text, " ")
	const parts = 4
	if len(fields) != parts {
		return stamp{}, false
	}
	seq, err := strconv.ParseUint(fields[0], 10, 64)
	length, err2 := strconv.ParseInt(fields[2], 10, 64)
	kind := fields[1]
	if err != nil || err2 != nil || seq == 0 || seq > maxSeq || length < 0 || length > int64(account.MaxCoolDown/time.Millisecond) ||
		kind != "cooling" && kind != "cleared" {
		return stamp{}, false
	}
	s := stamp{seq: seq, cleared: kind == "cleared", length: time.Duration(length) * time.Millisecond, by: fields[3]}
	return s, s.String() == text
}
