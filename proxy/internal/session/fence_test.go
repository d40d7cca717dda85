package session

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// slotAuthority is what a process believes of its slot.
type slotAuthority struct {
	epoch int64
	heard atomic.Int64
}

func (a *slotAuthority) Epoch() int64      { return a.epoch }
func (a *slotAuthority) Heard(epoch int64) { a.heard.Store(epoch) }

func (a *slotAuthority) setUp() setUp {
	o := chatGPT
	o.services = func(s *Services) { s.Authority = a }
	return o
}

// A process of the slot before stood still while another slot took over and went on
// with its conversation. What it claims when it wakes is refused, though nobody owns
// the key by then; it hears of the epoch that it has missed, and what the other slot
// has written stays as it is.
func TestT44_AClaimOfTheSlotBeforeIsFenced(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		before, after := &slotAuthority{epoch: 1}, &slotAuthority{epoch: 2}
		blue := newReplica(t, shared, "blue", "1", before.setUp())
		defer blue.quit()
		blue.anchored("t")
		blue.store.setCut(true)
		pass(61 * time.Second) // its lease of the key is over
		green := newReplica(t, shared, "green", "1", after.setUp())
		green.askWith("t", conversation(1), true)
		green.in(created("r1"), completed("r1"))
		green.quit()
		key := store.Key(affinity.Derive(affinity.Source{Header: map[string][]string{"Thread-Id": {"t"}}}).Name())
		wrote, err := shared.Look(t.Context(), key)
		if err != nil || wrote.Fence != 2 || wrote.Holder != (store.Holder{}) {
			t.Fatalf("%+v %v, want a key that nobody owns, under the fence of the slot that had it", wrote, err)
		}
		blue.store.setCut(false)
		a := blue.askWith("t", conversation(1), true)
		pass(5 * time.Second)
		if before.heard.Load() != 2 {
			t.Errorf("it heard of epoch %d, want 2", before.heard.Load())
		}
		now, err := shared.Look(t.Context(), key)
		if err != nil || now.Holder != (store.Holder{}) || now.Version != wrote.Version || now.Fence != 2 {
			t.Errorf("%+v %v, want it as the other slot left it: %+v", now, err, wrote)
		}
		a.detach()
	})
}
