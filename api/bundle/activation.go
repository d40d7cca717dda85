package bundle

import (
	"slices"
	"strings"
)

// slotNames are the two slots of a bridge; see v1alpha1.SlotName.
var slotNames = []string{"blue", "green"}

// Activation says how the two slots of a bridge agree on which of them has
// authority: admits new turns and writes records. The numbers are seconds.
type Activation struct {
	// Lease is the name of the Lease, in the namespace of the bundle.
	Lease string `json:"lease"`
	// HoldSeconds is how long a new turn waits for a hand-over.
	HoldSeconds int `json:"holdSeconds"`
	// LeaseSeconds after which a Lease that nobody renews is free.
	LeaseSeconds int `json:"leaseSeconds"`
	// RenewSeconds that authority outlives the last look at the Lease.
	RenewSeconds int `json:"renewSeconds"`
	// RetrySeconds between two looks.
	RetrySeconds int `json:"retrySeconds"`
}

// Holder is what the holderIdentity of the activation Lease says. A slot without
// a pod has authority and is between two captains: any of its pods may follow. The
// zero Holder is nobody, as during a hand-over.
type Holder struct {
	// Slot that has authority.
	Slot string
	// Pod that renews the Lease, its UID, and what tells its processes apart.
	Pod, UID, Nonce string
}

// String is the holderIdentity.
func (h Holder) String() string {
	if h.Pod == "" {
		return h.Slot
	}
	return strings.Join([]string{h.Slot, h.Pod, h.UID, h.Nonce}, "/")
}

// OtherSlot is the slot that takes turns with the given one; false = that is none.
func OtherSlot(slot string) (string, bool) {
	at := slices.Index(slotNames, slot)
	if at < 0 {
		return "", false
	}
	return slotNames[1-at], true
}

// ParseHolder reads a holderIdentity; false = somebody else wrote it.
func ParseHolder(identity string) (Holder, bool) {
	if identity == "" {
		return Holder{}, true
	}
	parts := strings.Split(identity, "/")
	if !slices.Contains(slotNames, parts[0]) || slices.Contains(parts, "") {
		return Holder{}, false
	}
	switch len(parts) {
	case 1:
		return Holder{Slot: parts[0]}, true
	case 4:
		return Holder{Slot: parts[0], Pod: parts[1], UID: parts[2], Nonce: parts[3]}, true
	default:
		return Holder{}, false
	}
}
