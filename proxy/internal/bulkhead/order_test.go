package bulkhead

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// queueing is the order in plain words: a list of clients, each with a list of
// those who wait; every look goes through all of them.
type queueing struct {
	clients []*plainClient
}

type plainClient struct {
	name    string
	waiting []*Ticket[string]
}

func (q *queueing) enter(t *Ticket[string]) {
	for _, c := range q.clients {
		if c.name == t.client.name {
			c.waiting = append(c.waiting, t)
			return
		}
	}
	q.clients = append(q.clients, &plainClient{t.client.name, []*Ticket[string]{t}})
}

func (q *queueing) leave(t *Ticket[string]) {
	for i, c := range q.clients {
		c.waiting = slices.DeleteFunc(c.waiting, func(o *Ticket[string]) bool { return o == t })
		if len(c.waiting) == 0 {
			q.clients = slices.Delete(q.clients, i, i+1)
			return
		}
	}
}

// next is the oldest servable one of the first client that has one.
func (q *queueing) next(can func(*Ticket[string]) bool) *Ticket[string] {
	for i, c := range q.clients {
		for _, t := range c.waiting {
			if can(t) {
				q.clients = append(slices.Delete(q.clients, i, i+1), c)
				return t
			}
		}
	}
	return nil
}

func TestOrderIsThatOfThePlainWords(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // repeatable
		h := newHall(t, Limits{MaxConcurrent: 3, MaxQueued: 12})
		plain := &queueing{}
		var permits []*Permit
		var tickets []*Ticket[string]
		for step := range 300 {
			switch random.IntN(5) {
			case 0, 1:
				a := Ask{Lane: Lane(random.IntN(3)), Client: fmt.Sprint(random.IntN(4)), Class: fmt.Sprint(random.IntN(3))} //nolint:gosec // small
				ticket, evicted := h.Enter(a, fmt.Sprint(step), start)
				if evicted != nil {
					plain.leave(evicted)
				}
				if ticket != nil {
					plain.enter(ticket)
					tickets = append(tickets, ticket)
				}
			case 2:
				if len(permits) > 0 {
					i := random.IntN(len(permits))
					permits[i].Release()
					permits = slices.Delete(permits, i, i+1)
				}
			case 3:
				if len(tickets) > 0 {
					if one := tickets[random.IntN(len(tickets))]; h.Leave(one) {
						plain.leave(one)
					}
				}
			default:
				permits = append(permits, serveBoth(t, h, plain, fmt.Sprint(random.IntN(3)))...)
			}
			h.check()
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
	}
}

// serveBoth serves all but one class and compares each choice.
func serveBoth(t *testing.T, h *hall, plain *queueing, blocked string) []*Permit {
	t.Helper()
	var permits []*Permit
	can := func(o *Ticket[string]) bool { return o.group.class.name != blocked && h.HasRoom(o.Lane()) }
	pass := h.Begin()
	for {
		next := pass.Next()
		for next != nil && next.group.class.name == blocked {
			pass.Block(next)
			next = pass.Next()
		}
		want := plain.next(can)
		if next != want {
			t.Fatalf("next is %v, want %v", next, want)
		}
		if next == nil {
			return permits
		}
		plain.leave(next)
		permits = append(permits, pass.Serve(next, start))
	}
}

// BenchmarkRelease is a place that comes free while thousands wait, most of them
// for something else.
func BenchmarkRelease(b *testing.B) {
	for _, clients := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("%d clients", clients), func(b *testing.B) {
			r := NewRoom[int](func(*Permit) {})
			for i := range 10_000 {
				r.Enter(Ask{Client: fmt.Sprint(i % clients), Class: fmt.Sprint(i % 40)}, i, start)
			}
			for b.Loop() {
				pass := r.Begin()
				for t := pass.Next(); t != nil; t = pass.Next() {
					pass.Block(t)
				}
			}
		})
	}
}
