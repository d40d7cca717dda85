package activation

import (
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
)

// settleTime is how long a captain that is asked to go waits before it does: the
// other pods of its slot see the same Lease, a moment later.
const settleTime = 300 * time.Millisecond

// Terms are the numbers of the protocol.
type Terms struct {
	// Lease after which a captain that does not renew is gone.
	Lease time.Duration
	// Renew is how long the process may stand still and still believe what it saw.
	Renew time.Duration
	// Retry is the time between two renewals.
	Retry time.Duration
}

// TermsOf are the numbers of a bundle.
func TermsOf(a bundle.Activation) Terms {
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	return Terms{Lease: seconds(a.LeaseSeconds), Renew: seconds(a.RenewSeconds), Retry: max(seconds(a.RetrySeconds), time.Second)}
}

// Move is what a pod does with the Lease.
type Move uint8

// Moves.
const (
	Stay    Move = iota
	Renew        // it is captain and goes on
	Acquire      // it becomes captain, with the next epoch
	Release      // its slot gives authority away
	Resign       // it goes; its slot keeps authority
)

var moveNames = [...]string{"stay", "renew", "acquire", "release", "resign"}

func (m Move) String() string { return moveNames[m] }

// Position is what a move follows from. Its times are of one clock, which runs
// while the machine is suspended.
type Position struct {
	Me    bundle.Holder
	Sight Sight
	// Eligible says that this pod can serve and stays.
	Eligible bool
	// Highest is the highest epoch that was heard of.
	Highest int64
	// Looked is when holder and renewal were seen first as they are; Asked when Next
	// was.
	Looked, Asked time.Duration
	// Renewed is when the last renewal of this pod began.
	Renewed time.Duration
}

// Next decides. It returns when to look again, if nothing changes before.
func Next(p Position, t Terms, now time.Duration) (Move, time.Duration) {
	s := p.Sight
	wanted := s.Next == p.Me.Slot || s.Next == "" && s.Holder.Slot == p.Me.Slot
	switch {
	case s.Holder == p.Me:
		return p.asCaptain(wanted, t, now)
	case !wanted || !p.Eligible:
		return Stay, t.Retry
	case s.vacant(p.Me.Slot), s.Holder.Slot == p.Me.Slot && s.Epoch < p.Highest:
		return Acquire, 0
	case !s.Foreign && s.Holder.Pod == "":
		// The other slot's captain resigned in the moment in which it was asked to go.
		return at(p.Asked+settleTime, now, Acquire)
	}
	return at(p.Looked+t.Lease, now, Acquire) // from somebody who does not renew
}

// at makes a move when its time has come.
func at(due, now time.Duration, m Move) (Move, time.Duration) {
	if wait := due - now; wait > 0 {
		return Stay, wait
	}
	return m, 0
}

// asCaptain is Next of the pod that holds the Lease.
func (p Position) asCaptain(wanted bool, t Terms, now time.Duration) (Move, time.Duration) {
	switch {
	case !wanted:
		return at(p.Asked+settleTime, now, Release)
	case !p.Eligible:
		return Resign, 0
	case p.Sight.Epoch < p.Highest:
		return Acquire, 0 // somebody took the epoch back, or made the Lease anew
	}
	return at(p.Renewed+t.Retry, now, Renew)
}

// vacant says that nobody holds the Lease, or that a slot does without a captain.
func (s Sight) vacant(slot string) bool {
	return !s.Foreign && s.Holder.Pod == "" && (s.Holder.Slot == "" || s.Holder.Slot == slot)
}

// After is the Lease after a move, but for its version; wall is the time that is
// shown to people.
func After(m Move, me bundle.Holder, k Knowledge, wall time.Time) Sight {
	s := k.Sight
	switch m {
	case Stay:
		return s
	case Acquire:
		s.Holder, s.Foreign = me, false
		s.Epoch = max(s.Epoch, k.Highest) + 1
	case Release:
		s.Holder = bundle.Holder{}
	case Resign:
		s.Holder = bundle.Holder{Slot: me.Slot}
	case Renew:
	}
	s.Renewed = wall.UTC().Format(renewFormat)
	return s
}

// renewFormat is that of metav1.MicroTime.
const renewFormat = "2006-01-02T15:04:05.000000Z07:00"
