package share

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

var epoch = time.Unix(1_800_000_000, 0)

func randomStamp(r *rand.Rand) stamp {
	return stamp{seq: 1 + r.Uint64N(3), cleared: r.IntN(2) == 0, length: time.Duration(r.IntN(3)) * time.Second, by: string(rune('a' + r.IntN(3)))}
}

func merge(a, b stamp) stamp {
	if newer(b, a) {
		return b
	}
	return a
}

func TestB51_MergingStampsDependsOnNoOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // a test repeats itself
	for range 100_000 {
		a, b, c := randomStamp(r), randomStamp(r), randomStamp(r)
		switch {
		case merge(a, b) != merge(b, a):
			t.Fatalf("not commutative: %v, %v", a, b)
		case merge(a, merge(b, c)) != merge(merge(a, b), c):
			t.Fatalf("not associative: %v, %v, %v", a, b, c)
		case merge(a, a) != a || newer(a, a):
			t.Fatalf("not idempotent: %v", a)
		}
	}
}

func TestSettle(t *testing.T) {
	now := epoch
	at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	cooling := func(seq uint64, by string, s int) fact {
		return fact{stamp{seq: seq, length: time.Duration(s) * time.Second, by: by}, at(s)}
	}
	cleared := func(seq uint64, by string, s int) fact { return fact{stamp{seq: seq, cleared: true, by: by}, at(s)} }
	none := time.Time{}
	for name, tc := range map[string]struct {
		known fact
		local time.Time
		told  fact // none without seq
		want  fact
	}{
		"nothing":                                     {fact{}, none, fact{}, fact{}},
		"an upstream says it here":                    {fact{}, at(60), fact{}, cooling(1, "me", 60)},
		"it goes on":                                  {cooling(1, "me", 60), at(60), cooling(1, "me", 60), cooling(1, "me", 60)},
		"a sibling says it":                           {fact{}, none, cooling(4, "b", 60), cooling(4, "b", 60)},
		"it is longer now":                            {cooling(1, "b", 60), at(90), fact{}, cooling(2, "me", 90)},
		"hardly longer":                               {cooling(1, "b", 60), at(60).Add(slack - 1), fact{}, cooling(1, "b", 60)},
		"it is shorter, since it is another":          {cooling(1, "b", 60), at(20), fact{}, cooling(2, "me", 20)},
		"it works again":                              {cooling(1, "b", 90), none, cooling(1, "b", 90), cleared(2, "me", 90)},
		"what is cleared is remembered for a while":   {cooling(1, "b", 5), none, fact{}, cleared(2, "me", 60)},
		"a sibling says that it works":                {cooling(1, "me", 90), at(90), cleared(2, "b", 90), cleared(2, "b", 90)},
		"an older word counts for nothing":            {cleared(2, "b", 90), none, cooling(1, "me", 80), cleared(2, "b", 90)},
		"cleared, and the upstream says it anew":      {cleared(2, "b", 90), at(30), cleared(2, "b", 90), cooling(3, "me", 30)},
		"it is over":                                  {cooling(2, "b", 0), none, cooling(1, "c", 0), cooling(2, "b", 0)},
		"it is over, and comes anew":                  {cooling(2, "b", -5), at(30), fact{}, cooling(3, "me", 30)},
		"works here, and is said anew elsewhere":      {cooling(1, "b", 90), none, cooling(2, "c", 60), cooling(2, "c", 60)},
		"works here and there":                        {cooling(1, "b", 90), none, cleared(2, "c", 90), cleared(2, "c", 90)},
		"said here, longer than elsewhere":            {fact{}, at(90), cooling(5, "b", 60), cooling(6, "me", 90)},
		"said here, shorter than elsewhere":           {fact{}, at(30), cooling(5, "b", 60), cooling(5, "b", 60)},
		"said here, while it is cleared elsewhere":    {cooling(1, "b", 20), at(90), cleared(2, "c", 60), cooling(3, "me", 90)},
		"cleared elsewhere, and said here, at once":   {cooling(2, "b", 60), at(60), cleared(2, "c", 60), cooling(2, "b", 60)},
		"cleared here, and said elsewhere, at once":   {cleared(2, "me", 60), none, cooling(2, "c", 60), cooling(2, "c", 60)},
		"what is over counts less than what is not":   {cooling(9, "b", -1), none, cooling(2, "c", 60), cooling(2, "c", 60)},
		"and is outdone by what is said next":         {cooling(9, "b", -1), at(90), cooling(2, "c", 60), cooling(10, "me", 90)},
		"a start after one that said it":              {fact{}, none, cooling(7, "old", 40), cooling(7, "old", 40)},
		"an end so near that nobody need hear of it":  {cooling(1, "b", 0), at(0).Add(slack - 1), fact{}, cooling(1, "b", 0)},
		"a local time that is over is no cool-down":   {fact{}, at(-5), fact{}, fact{}},
		"at the same time, and here it is not known":  {cooling(2, "b", 60), at(60), cooling(2, "c", 60), cooling(2, "c", 60)},
		"at the same time, and a longer one is known": {cooling(2, "b", 60), at(60), cooling(2, "c", 30), cooling(2, "b", 60)},
	} {
		t.Run(name, func(t *testing.T) {
			var told *fact
			if tc.told.seq > 0 {
				told = &tc.told
			}
			if got := settle(tc.known, tc.local, told, "me", now); got != tc.want {
				t.Errorf("got %v until %s, want %v until %s", got.stamp, got.ends.Sub(now), tc.want.stamp, tc.want.ends.Sub(now))
			}
		})
	}
}

// A sibling that thinks for a moment longer that a cool-down runs must not shorten
// the next one.
func TestWhatIsOverIsOutdoneByWhatIsSaidNext(t *testing.T) {
	now := epoch
	c := newCooler(func() time.Time { return now })
	s := NewCoolDowns(c, "me")
	s.Learn([]Item{{Name: "a/RateLimited", Value: []byte("5 cooling 10000 b"), Left: 10 * time.Second}}, now)
	for range 12 {
		now = now.Add(time.Second)
		s.Learn(nil, now)
	}
	c.cool("a/RateLimited", time.Minute)
	s.Learn(nil, now)
	if got := s.Local(now); len(got) != 1 || string(got[0].Value) != "6 cooling 60000 me" {
		t.Errorf("%v", got)
	}
	now = now.Add(2 * time.Minute)
	s.Learn(nil, now)
	if len(s.facts) != 0 {
		t.Errorf("%d facts are never forgotten", len(s.facts))
	}
}

func FuzzStamp(f *testing.F) {
	f.Add("1 cooling 60000 a")
	f.Add("18446744073709551615 cleared 0 ")
	f.Add("1 cooling -1 a")
	f.Add("01 cooling 1 a")
	f.Fuzz(func(t *testing.T, text string) {
		s, ok := parseStamp(text)
		if ok && (s.String() != text || s.seq == 0 || s.length < 0 || s.length > account.MaxCoolDown) {
			t.Errorf("%q is read as %+v", text, s)
		}
	})
}

// world is some replicas with one board, and a time that the test moves.
type world struct {
	now     time.Time
	board   *counting
	coolers []*cooler
	all     []*Exchanger
}

func newWorld(replicas int) *world {
	w := &world{now: epoch}
	w.board = &counting{Board: store.NewMemory(w.read)}
	for i := range replicas {
		w.coolers = append(w.coolers, newCooler(w.read))
		w.all = append(w.all, nil)
		w.restart(i, fmt.Sprint("p", i))
	}
	return w
}

func (w *world) read() time.Time { return w.now }

// restart gives a replica a new process. Its cooler starts empty.
func (w *world) restart(i int, process string) {
	w.coolers[i] = newCooler(w.read)
	w.all[i] = New(Options{Board: w.board, Sources: []Source{NewCoolDowns(w.coolers[i], process)}, Clock: fixed{w}})
}

func (w *world) once(t *testing.T, i int) {
	t.Helper()
	if err := w.all[i].exchange(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (w *world) settle(t *testing.T) {
	t.Helper()
	for range 3 {
		for i := range w.all {
			w.once(t, i)
		}
	}
}

// Whatever happens in whatever order, replicas that hear of each other agree, and
// say nothing more.
func TestB51_ReplicasAgreeAndSayNothingMore(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // a test repeats itself
		w := newWorld(2 + r.IntN(3))
		names := []string{"a/RateLimited", "a/QuotaExhausted", "b/RateLimited"}
		for step := range 60 {
			i, name := r.IntN(len(w.all)), names[r.IntN(len(names))]
			switch r.IntN(10) {
			case 0, 1:
				w.coolers[i].cool(name, time.Duration(r.IntN(600))*time.Second)
			case 2:
				w.coolers[i].cool(name, 0)
			case 3:
				w.restart(i, fmt.Sprint("again", step))
			case 4:
				if r.IntN(5) == 0 {
					w.board.Board = store.NewMemory(w.read) // all is lost
				}
			default:
				w.once(t, i)
			}
			w.now = w.now.Add(time.Duration(r.IntN(3_000)) * time.Millisecond)
		}
		w.settle(t)
		writes, swaps := w.board.count(), w.swaps()
		for range 30 {
			w.now = w.now.Add(time.Second)
			for i := range w.all {
				w.once(t, i)
			}
		}
		if w.board.count() != writes || w.swaps() != swaps {
			t.Fatalf("seed %d: %d writes and %d changes though nothing happens", seed, w.board.count()-writes, w.swaps()-swaps)
		}
		for _, name := range names {
			var left []time.Duration
			for _, c := range w.coolers {
				left = append(left, c.left(name))
			}
			if slices.Max(left)-slices.Min(left) >= 2*slack {
				t.Fatalf("seed %d: %s has left %v", seed, name, left)
			}
		}
	}
}

func (w *world) swaps() (n int) {
	for _, c := range w.coolers {
		n += c.swaps
	}
	return n
}
