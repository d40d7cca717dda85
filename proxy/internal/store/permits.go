package store

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Permits shares out numbers among replicas, for example the turns that may run
// on an account. The sum of what all holders of a name have exceeds the limit
// only where it has to: a holder that could not be heard of for longer than its
// lease, or a limit that was lowered, leaves turns that run on until they end.
type Permits interface {
	// LeasePermits sets what me has of each name, for life from now, and answers
	// for each ask. It is one way to the store and back for all of them. What a
	// holder has that is not heard of for life is free again, by the store's clock,
	// and what an earlier process of the pod had is free at once.
	LeasePermits(ctx context.Context, me Holder, asks []Ask, life time.Duration) []Grant
}

// Ask is what a holder says of one name.
type Ask struct {
	// Name is text of 1 to MaxNoteName bytes without spaces or braces.
	Name string
	// Limit is how many there are for all holders together.
	Limit int
	// Keep is how many the holder may use until it has the answer: its answer is
	// never less, so that nothing is given to others that is still in use. Who
	// wants to give back uses less first, and asks then.
	Keep int
	// Need is how many it uses and waits for, Want how many it would like to have,
	// reserve included. Need comes before anybody's reserve. An ask without Keep,
	// Need and Want gives everything back.
	Need, Want int
}

// Grant is the answer to an Ask.
type Grant struct {
	// Err is nil, or wraps ErrUnavailable or ErrTooLarge.
	Err error
	// Count is how many the holder has now.
	Count int
	// Fair is how many it should have; with less than Count the holder is asked to
	// use no more than Fair from now on, because it needs no more, or others wait.
	Fair int
}

// permitTurn is how long an odd permit belongs to the same holder, if more need
// it than there are.
const permitTurn = 5 * time.Second

// holding is what the store knows of one holder.
type holding struct {
	pod         string
	count, need int
}

// divide answers an ask, given what the other live holders have. known says that
// the store has heard of the holder within its lease. window counts permitTurns.
//
// What all need is shared out as evenly as it can be: who needs less than an even
// share gets what it needs. A reserve comes out of what is left then, but for one,
// so that the next who needs one need not wait until others hear of it.
func divide(a Ask, pod string, known bool, others []holding, window int64) (count, fair int) {
	free := a.Limit
	fairs := even(a.Limit, append(slices.Clone(others), holding{pod: pod, need: a.Need}), window)
	fair = fairs[pod]
	rest := a.Limit - fair - 1
	for _, o := range others {
		free -= o.count
		rest -= max(fairs[o.pod], o.count)
	}
	fair += max(min(a.Want-a.Need, rest), 0)
	if !known && a.Keep > 0 {
		// The store has lost what it knew, of others too: they ask again soon.
		return a.Keep, fair
	}
	return max(a.Keep, min(fair, free)), fair
}

// even shares limit out to holders with needs. What does not divide goes to some
// of them, in turns.
func even(limit int, all []holding, window int64) map[string]int {
	slices.SortFunc(all, func(a, b holding) int { return strings.Compare(a.pod, b.pod) })
	shares := make(map[string]int, len(all))
	hungry := slices.DeleteFunc(all, func(h holding) bool { return h.need == 0 })
	for len(hungry) > 0 && limit >= len(hungry) {
		each := limit / len(hungry)
		var rest []holding
		for _, h := range hungry {
			part := min(each, h.need-shares[h.pod])
			shares[h.pod] += part
			limit -= part
			if shares[h.pod] < h.need {
				rest = append(rest, h)
			}
		}
		hungry = rest
	}
	for i := range min(limit, len(hungry)) {
		h := hungry[(int(window%int64(len(hungry)))+i)%len(hungry)]
		shares[h.pod]++
	}
	return shares
}

// sane is the ask with numbers that can be reckoned with.
func (a Ask) sane() Ask {
	const most = 1_000_000 // beyond every limit of an account
	bound := func(n int) int { return min(max(n, 0), most) }
	a.Limit, a.Keep, a.Need, a.Want = bound(a.Limit), bound(a.Keep), bound(a.Need), bound(a.Want)
	return a
}

// over says that the holder gives everything back.
func (a Ask) over() bool { return a.Keep == 0 && a.Need == 0 && a.Want == 0 }

// check says whether the ask can be stored.
func (a Ask) check(me Holder) error {
	if !nameFits(a.Name) || !nameFits(me.Pod) || !nameFits(me.Process) {
		return ErrTooLarge
	}
	return nil
}
