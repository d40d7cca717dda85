package bulkhead

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

var start = time.Unix(1_700_000_000, 0)

// hall is a room whose lanes have limits, and all of whose classes can be served
// but those in blocked.
type hall struct {
	*Room[string]
	t       *testing.T
	blocked map[string]bool
	// judged counts looks at one who waits.
	judged int
}

func newHall(t *testing.T, limits Limits) *hall {
	t.Helper()
	h := &hall{t: t, blocked: map[string]bool{}}
	h.Room = NewRoom[string](func(p *Permit) { h.Give(p, start) })
	for _, l := range Lanes() {
		h.Limit(l, limits)
	}
	return h
}

// enter lets one wait that is called client plus a number.
func (h *hall) enter(client, class string, number int) *Ticket[string] {
	h.t.Helper()
	t, evicted := h.Enter(Ask{Client: client, Class: class}, fmt.Sprintf("%s%d", client, number), start)
	if t == nil || evicted != nil {
		h.t.Fatalf("%s%d: ticket %v, evicted %v", client, number, t, evicted)
	}
	return t
}

// serve gives away n places and names who got them.
func (h *hall) serve(n int) []string {
	h.t.Helper()
	var got []string
	pass := h.Begin()
	for t := pass.Next(); t != nil && n > 0; t = pass.Next() {
		h.judged++
		if h.blocked[t.group.class.name] {
			pass.Block(t)
			continue
		}
		got = append(got, t.Value)
		pass.Serve(t, start)
		n--
	}
	h.check()
	return got
}

// check compares all counts with each other.
func (h *hall) check() {
	h.t.Helper()
	waiting, underWay := 0, 0
	var queued [lanes]int
	classes := map[string]int{}
	for _, c := range h.clients {
		var perLane [lanes]int
		for _, g := range c.groups {
			n := g.tickets.Len()
			waiting += n
			classes[g.class.name] += n
			if g.underWay {
				underWay += n
			} else {
				perLane[g.lane] += n
				queued[g.lane] += n
			}
			if n == 0 {
				h.t.Errorf("%s keeps an empty group", c.name)
			}
		}
		if perLane != c.perLane || len(c.groups) == 0 {
			h.t.Errorf("%s: counted %v, has %v, in %d groups", c.name, perLane, c.perLane, len(c.groups))
		}
	}
	for i := range queued {
		if queued[i] != h.lanes[i].queued {
			h.t.Errorf("lane %d: %d wait, counted %d", i, queued[i], h.lanes[i].queued)
		}
	}
	if waiting != h.waiting || underWay != h.underWay || h.line.Len() != len(h.clients) || len(classes) != len(h.classes) {
		h.t.Errorf("%d wait, counted %d; %d under way, counted %d; %d clients in a line of %d; %d classes of %d",
			waiting, h.waiting, underWay, h.underWay, len(h.clients), h.line.Len(), len(classes), len(h.classes))
	}
	for name, n := range classes {
		if h.Class(name) != n {
			h.t.Errorf("class %q has %d, counted %d", name, n, h.Class(name))
		}
	}
}

func TestClientsTakeTurns(t *testing.T) {
	h := newHall(t, Limits{})
	for i := range 3 {
		h.enter("a", "", i)
	}
	h.enter("b", "", 0)
	h.enter("c", "", 0)
	h.enter("c", "", 1)
	want := []string{"a0", "b0", "c0", "a1", "c1", "a2"}
	if got := h.serve(9); !slices.Equal(got, want) {
		t.Errorf("served %v, want %v", got, want)
	}
}

// A turn that was taken is remembered from one pass to the next.
func TestTurnsGoOnInTheNextPass(t *testing.T) {
	h := newHall(t, Limits{})
	for i := range 3 {
		h.enter("a", "", i)
		h.enter("b", "", i)
	}
	var got []string
	for range 6 {
		got = append(got, h.serve(1)...)
	}
	if want := []string{"a0", "b0", "a1", "b1", "a2", "b2"}; !slices.Equal(got, want) {
		t.Errorf("served %v, want %v", got, want)
	}
}

func TestWhoIsHeldUpHoldsUpNobody(t *testing.T) {
	h := newHall(t, Limits{})
	h.blocked["x"] = true
	h.enter("a", "x", 0)
	h.enter("a", "y", 1)
	h.enter("b", "x", 0)
	h.enter("b", "y", 1)
	if got := h.serve(9); !slices.Equal(got, []string{"a1", "b1"}) {
		t.Errorf("served %v", got)
	}
	// Those who were passed over come first when they can be served.
	h.enter("c", "y", 0)
	h.blocked["x"] = false
	if got := h.serve(9); !slices.Equal(got, []string{"a0", "b0", "c0"}) {
		t.Errorf("served %v", got)
	}
}

func TestOneIsJudgedForAllOfItsClass(t *testing.T) {
	h := newHall(t, Limits{MaxConcurrent: 5, MaxQueued: 10_000})
	h.blocked["x"] = true
	for i := range 10_000 {
		h.enter(fmt.Sprint("client", i%50), "x", i)
	}
	if h.serve(9); h.judged != 1 {
		t.Errorf("judged %d of 10,000 who need the same, want 1", h.judged)
	}
	for range 5 {
		h.Take(HTTP, start)
	}
	h.judged = 0
	if h.serve(9); h.judged != 0 {
		t.Errorf("judged %d though the lane is full", h.judged)
	}
}

func TestLanesDoNotSinkEachOther(t *testing.T) {
	h := newHall(t, Limits{MaxConcurrent: 1, MaxQueued: 9})
	held := h.Take(Media, start)
	for _, l := range []Lane{Media, Media, HTTP} {
		if ticket, _ := h.Enter(Ask{Lane: l, Client: "a"}, l.String(), start); ticket.Lane() != l || !ticket.Waits() {
			t.Errorf("waits in %s, want %s", ticket.Lane(), l)
		}
	}
	if got := h.serve(9); !slices.Equal(got, []string{"HTTP"}) {
		t.Errorf("served %v", got)
	}
	held.Release()
	held.Release()
	if got := h.serve(9); !slices.Equal(got, []string{"Media"}) {
		t.Errorf("one place was given back, served %v", got)
	}
	for _, s := range h.States() {
		want := State{Lane: s.Lane, Limits: Limits{MaxConcurrent: 1, MaxQueued: 9}}
		switch s.Lane {
		case HTTP:
			want.Inflight = 1
		case Media:
			want.Inflight, want.Queued = 1, 1
		default:
		}
		if s != want {
			t.Errorf("%+v, want %+v", s, want)
		}
	}
}

func TestPlacesInAFullQueueAreShared(t *testing.T) {
	enter := func(h *hall, client, class string, number int) (entered, evicted string) {
		ticket, out := h.Enter(Ask{Client: client, Class: class}, fmt.Sprintf("%s%d", client, number), start)
		h.check()
		if ticket != nil {
			entered = ticket.Value
		}
		if out != nil {
			evicted = out.Value
			if out.Waits() || h.Leave(out) {
				t.Errorf("%s was evicted and still waits", out.Value)
			}
		}
		return entered, evicted
	}
	for _, c := range []struct {
		name             string
		queue            []string // client:class
		client, class    string
		entered, evicted string
	}{
		{"the youngest of the greedy one goes", []string{"a:x", "a:x", "a:x", "b:x"}, "c", "x", "c9", "a2"},
		{"a second place, while the greedy one has three", []string{"a:x", "b:x", "a:x", "a:x"}, "b", "x", "b9", "a3"},
		{"not if the other would have fewer then", []string{"a:x", "a:x", "b:x", "c:x"}, "b", "x", "", ""},
		{"not from one who has one", []string{"a:x", "b:x", "c:x", "d:x"}, "e", "x", "", ""},
		{"not for the greedy one itself", []string{"a:x", "a:x", "a:x", "b:x"}, "a", "x", "", ""},
		{"one account does not take all places of a client", []string{"a:x", "a:x", "a:x", "a:x"}, "a", "y", "a9", "a3"},
		{"and not back", []string{"a:x", "a:x", "a:y", "a:y"}, "a", "x", "", ""},
		{"nor one for one", []string{"a:x", "a:x", "a:y"}, "a", "y", "", ""},
		{"of the greedy one, what it has most of goes", []string{"a:x", "a:x", "a:x", "a:y"}, "b", "x", "b9", "a2"},
		{"from the greediest of several", []string{"a:x", "b:x", "b:x", "b:x"}, "c", "x", "c9", "b3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHall(t, Limits{MaxConcurrent: 1, MaxQueued: len(c.queue)})
			for i, q := range c.queue {
				h.enter(q[:1], q[2:], i)
			}
			if entered, evicted := enter(h, c.client, c.class, 9); entered != c.entered || evicted != c.evicted {
				t.Errorf("entered %q, evicted %q; want %q, %q", entered, evicted, c.entered, c.evicted)
			}
		})
	}
	t.Run("no queue at all", func(t *testing.T) {
		h := newHall(t, Limits{MaxConcurrent: 1})
		if entered, evicted := enter(h, "a", "x", 0); entered != "" || evicted != "" {
			t.Errorf("entered %q, evicted %q", entered, evicted)
		}
	})
	t.Run("an unlimited lane has places for all who wait for an account", func(t *testing.T) {
		h := newHall(t, Limits{})
		for i := range 10_000 {
			h.enter("a", "x", i)
		}
	})
}

func TestWhatIsUnderWayComesFirst(t *testing.T) {
	h := newHall(t, Limits{MaxConcurrent: 1, MaxQueued: 2})
	first := h.Take(HTTP, start)
	h.enter("a", "x", 0)
	h.enter("a", "x", 1)
	again, evicted := h.Enter(Ask{Lane: Media, Client: "a", Class: "x", Permit: first}, "again", start)
	if again == nil || evicted != nil || again.Lane() != HTTP || again.Permit() != first {
		t.Fatalf("%+v, evicted %v", again, evicted)
	}
	h.check()
	if s := h.States()[HTTP]; s.Queued != 2 || s.Inflight != 1 {
		t.Errorf("%+v", s)
	}
	pass := h.Begin()
	if got := pass.Next(); got != again || pass.Serve(got, start) != first {
		t.Errorf("the lane is full and %q is next", got.Value)
	}
	if pass.Next() != nil {
		t.Error("somebody got into a full lane")
	}
	h.check()
}

// Two who are under way, and one who only waits: in the order in which they began.
func TestUnderWayInOrder(t *testing.T) {
	h := newHall(t, Limits{})
	first, second := h.Take(HTTP, start), h.Take(HTTP, start)
	h.enter("a", "x", 0)
	for _, p := range []*Permit{second, first} {
		name := map[*Permit]string{first: "first", second: "second"}[p]
		h.Enter(Ask{Client: "a", Class: "x", Permit: p}, name, start)
	}
	if got := h.serve(9); !slices.Equal(got, []string{"first", "second", "a0"}) {
		t.Errorf("served %v", got)
	}
}

func TestLimitsChange(t *testing.T) {
	h := newHall(t, Limits{MaxConcurrent: 3, MaxQueued: 9})
	var held []*Permit
	for range 3 {
		held = append(held, h.Take(HTTP, start))
	}
	h.enter("a", "x", 0)
	h.Limit(HTTP, Limits{MaxConcurrent: 1, MaxQueued: 0})
	for i, p := range held {
		if got := h.serve(9); len(got) > 0 {
			t.Fatalf("%d of 3 given back, and %v got one of 1", i, got)
		}
		p.Release()
	}
	if got := h.serve(9); !slices.Equal(got, []string{"a0"}) {
		t.Errorf("served %v", got)
	}
	h.Limit(HTTP, Limits{})
	if !h.HasRoom(HTTP) || !h.Limits(HTTP).Unlimited() {
		t.Error("an unlimited lane is full")
	}
}

func TestSweepTakesOutWholeClasses(t *testing.T) {
	h := newHall(t, Limits{MaxConcurrent: 1, MaxQueued: 99})
	h.Take(HTTP, start) // full: they hear of it all the same
	for i := range 9 {
		h.enter([]string{"a", "b", "c"}[i%3], []string{"x", "y"}[i%2], i)
	}
	asked := 0
	out := h.Sweep(func(t *Ticket[string]) bool {
		asked++
		return t.group.class.name == "x"
	})
	h.check()
	if asked != 2 || len(out) != 5 || h.Waiting() != 4 || h.Class("x") != 0 {
		t.Errorf("asked %d times, %d are out, %d wait", asked, len(out), h.Waiting())
	}
}

func TestLaneNames(t *testing.T) {
	for _, l := range Lanes() {
		if got, ok := LaneOf(l.String()); !ok || got != l {
			t.Errorf("%s is %s, %t", l, got, ok)
		}
	}
	if _, ok := LaneOf("unknown"); ok || Lane(99).String() != "unknown" {
		t.Error("a lane that is none has a name")
	}
}

func TestNoPermitIsHeldByNobody(t *testing.T) {
	var none *Permit
	none.Release()
	if none.Held() || none.Spend() {
		t.Error("nothing is held")
	}
}
