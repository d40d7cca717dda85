package activation

import "testing"

func TestT42_TheWaitingRoomIsBounded(t *testing.T) {
	g := NewGate(nil)
	var leave []func()
	for range maxHeld {
		l, ok := g.Enter(1000)
		if !ok {
			t.Fatalf("the room is full with %d", g.Held())
		}
		leave = append(leave, l)
	}
	if _, ok := g.Enter(0); ok {
		t.Error("there is room for one more than there are places")
	}
	leave[0]()
	if _, ok := g.Enter(0); !ok {
		t.Error("a place that was given back is not given again")
	}
	g = NewGate(nil)
	out, ok := g.Enter(2 * maxHeldBytes)
	if !ok {
		t.Fatal("a single body, however large, may wait")
	}
	if _, ok := g.Enter(1); ok {
		t.Error("bytes are not bounded")
	}
	out()
	if _, ok := g.Enter(1); !ok || g.Held() != 1 {
		t.Errorf("%d wait, want one", g.Held())
	}
}
