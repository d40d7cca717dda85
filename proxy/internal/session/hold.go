package session

import (
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// maxHeld bounds the events that are held.
const maxHeld = 16

// holds says whether an event is kept from the client for now: it shows no work.
func (f *flight) holds(k upstream.Kind, now time.Time) bool {
	if f.shown || len(f.held) >= maxHeld || !f.heldUntil.IsZero() && !now.Before(f.heldUntil) {
		return false
	}
	switch k {
	case upstream.KindCreated, upstream.KindInProgress, upstream.KindVendor, upstream.KindKeepalive:
		return true
	default:
		return false
	}
}

func (a *actor) hold(f *flight, e upstream.Event) {
	f.held = append(f.held, e)
	if f.heldUntil.IsZero() {
		f.heldUntil = a.now().Add(a.services.Hold)
		a.arm()
	}
}

// reveal gives the client what was held, once, and says whether the turn goes on.
func (a *actor) reveal(f *flight) bool {
	held := f.held
	f.shown, f.held, f.heldUntil = true, nil, time.Time{}
	for i := range held {
		if !a.push(f, held[i]) {
			for _, e := range held[i+1:] {
				e.Release()
			}
			return false
		}
	}
	return true
}

// dropHeld forgets what the client has not seen: another attempt begins anew, or
// nobody is there.
func (f *flight) dropHeld() {
	for i := range f.held {
		f.held[i].Release()
	}
	f.held, f.heldUntil = nil, time.Time{}
}
