// Package activation decides whether this proxy has authority: whether it may
// admit new turns and claim what the store keeps. Two slots of a bridge take turns
// under one Lease; the pod that renews it is its slot's captain, and all pods of
// the slot share its authority.
//
// What is true follows from the Lease and two clocks alone (Judge, Next), both
// pure. The epoch in the Lease rises with every captain and goes with every claim.
package activation

import (
	"github.com/causeway-dev/causeway/api/bundle"
)

// Sight is what the Lease says.
type Sight struct {
	Holder bundle.Holder
	// Foreign says that somebody who is no proxy holds it.
	Foreign bool
	// Epoch rises with each captain.
	Epoch int64
	// Next is the slot that shall have authority; empty = whoever has it.
	Next string
	// Renewed is when its holder renewed it, by the holder's clock: two values are
	// compared for being the same, and for nothing else.
	Renewed string
	// Version is the Lease's resourceVersion.
	Version string
}

// Mode is what a proxy does with a new turn.
type Mode uint8

// Modes.
const (
	// Hold: nobody admits at this moment, or it is not known who does.
	Hold Mode = iota
	// Serve: this slot has authority.
	Serve
	// Relay: the other slot has.
	Relay
)

// Modes lists all modes by name.
func Modes() []string { return modeNames[:] }

var modeNames = [...]string{"hold", "serve", "relay"}

func (m Mode) String() string { return modeNames[m] }

// Verdict is what follows from what is known.
type Verdict struct {
	Mode Mode
	// Epoch goes with every claim.
	Epoch int64
}

// Knowledge is all that a verdict follows from.
type Knowledge struct {
	Sight
	// Seen says that there was a Lease to see, ever.
	Seen bool
	// Blind says that there was none, and that nobody can have been given authority
	// through it: nobody makes it, or the API server cannot be reached.
	Blind bool
	// Stale says that the process stood still for so long that anything may have
	// happened, and has not looked since.
	Stale bool
	// Highest is the highest epoch that was heard of, from anywhere.
	Highest int64
}

// Judge says what the proxies of a slot may do.
func Judge(slot string, k Knowledge) Verdict {
	switch {
	case k.Stale:
		return Verdict{Mode: Hold, Epoch: k.Epoch}
	case !k.Seen && k.Blind:
		return Verdict{Mode: Serve, Epoch: k.Highest}
	case !k.Seen, k.Epoch < k.Highest, k.Foreign, k.Holder.Slot == "":
		return Verdict{Mode: Hold, Epoch: k.Epoch}
	case k.Next != "" && k.Next != k.Holder.Slot:
		// Asked to go: the turns that wait go to whoever comes.
		return Verdict{Mode: Hold, Epoch: k.Epoch}
	case k.Holder.Slot != slot:
		return Verdict{Mode: Relay, Epoch: k.Epoch}
	default:
		return Verdict{Mode: Serve, Epoch: k.Epoch}
	}
}
