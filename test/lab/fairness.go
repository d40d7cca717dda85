package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Fairness: a lane with room for more turns than the small client ever has at
// once, and far fewer than the large one wants. Alone, the small client never
// waits, so that what is compared is the whole time of its turns.
const (
	fairLane  = 16
	fairQueue = 400 // of the lane; the large client has more
	fairSmall = 10
	fairLarge = 1000
	// fairCrowd is how many turns of the large client are under way before it counts.
	fairCrowd = fairLarge / 2
	// fairSettle is how long its first turns get, which all come at once.
	fairSettle = 3 * time.Second
)

func runFairness(ctx context.Context, b *bed, s settings) (section, error) {
	part := section{title: fmt.Sprintf("Fairness: a lane for %d turns and %d waiting, answers take %s; one client with %d turns at once, one with %d; %d rounds of %g s",
		fairLane, fairQueue, latency, fairLarge, fairSmall, s.rounds, s.seconds)}
	to, err := b.start(ctx, pool{clients: []string{"small", "large"},
		policy: fmt.Sprintf("bulkheads: [{lane: HTTP, mode: Limited, maxConcurrent: %d, maxQueued: %d, queueTimeoutSeconds: 60}]", fairLane, fairQueue)})
	if err != nil {
		return part, err
	}
	lasting := time.Duration(s.seconds * float64(time.Second))
	small, large := b.caller(to, "small"), b.caller(to, "large")
	small.crowd(ctx, fairSmall, time.Second, nil) // connections are there from here on
	var alone, beside, greedy tally
	for range s.rounds {
		alone.add(small.crowd(ctx, fairSmall, lasting, nil))
		one, other, err := besideLarge(ctx, small, large, lasting)
		if err != nil {
			return part, err
		}
		beside.add(one)
		greedy.add(other)
	}
	part.figures = []figure{
		{name: "time of a turn of the small client, p50", unit: "ms", reference: quantile(alone.took, 0.5), measured: quantile(beside.took, 0.5), times: 2, digits: 1},
		{name: "time of a turn of the small client, p99", unit: "ms", reference: quantile(alone.took, 0.99), measured: quantile(beside.took, 0.99), times: 2, digits: 1},
		{name: "turns of the small client refused", reference: float64(alone.refused), measured: float64(beside.refused), never: true},
		{name: "time of a turn of the large client, p50", unit: "ms", reference: none(), measured: quantile(greedy.took, 0.5), digits: 1},
		{name: "turns of the large client served", reference: none(), measured: float64(len(greedy.took))},
		{name: "turns of the large client refused", reference: none(), measured: float64(greedy.refused)},
	}
	switch {
	case ctx.Err() != nil:
		return part, context.Cause(ctx)
	case alone.refused > 0:
		return part, fmt.Errorf("alone, %d turns were refused, for example %s", alone.refused, alone.example)
	case len(beside.took) == 0 || len(greedy.took) == 0:
		return part, fmt.Errorf("a client was never served: %s %s", beside.example, greedy.example)
	}
	return part, nil
}

// besideLarge measures the small client while the large one has its crowd there.
func besideLarge(ctx context.Context, small, large *caller, lasting time.Duration) (one, other tally, err error) {
	crowd, leave := context.WithCancel(ctx)
	defer leave()
	var there atomic.Int64
	var busy sync.WaitGroup
	busy.Go(func() { other = large.crowd(crowd, fairLarge, time.Hour, &there) })
	err = awaitTrue(ctx, "that the large client has its turns under way", 20*time.Second, func() bool { return there.Load() >= fairCrowd })
	if err == nil {
		err = pause(ctx, fairSettle)
	}
	if err == nil {
		one = small.crowd(ctx, fairSmall, lasting, nil)
	}
	leave()
	busy.Wait()
	return one, other, err
}

// tally is what came of the turns of a crowd.
type tally struct {
	took    []time.Duration
	refused int
	example answer
}

func (t *tally) add(other tally) {
	t.took, t.refused = append(t.took, other.took...), t.refused+other.refused
	if other.refused > 0 {
		t.example = other.example
	}
}

// crowd keeps n turns under way for some time, each followed by the next; who is
// refused waits as it is told. there counts those that have been asked for and not
// answered; nil = nobody asks.
func (c *caller) crowd(ctx context.Context, n int, lasting time.Duration, there *atomic.Int64) tally {
	ctx, cancel := context.WithTimeout(ctx, lasting)
	defer cancel()
	if there == nil {
		there = new(atomic.Int64)
	}
	tallies := make([]tally, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { tallies[i] = c.member(ctx, there) })
	}
	all.Wait()
	var sum tally
	for _, t := range tallies {
		sum.add(t)
	}
	return sum
}

// member is one of a crowd. The turn that is under way at the end counts for
// nothing.
func (c *caller) member(ctx context.Context, there *atomic.Int64) (t tally) {
	for ctx.Err() == nil {
		there.Add(1)
		a := c.ask(ctx, time.Now(), modelAny, "")
		there.Add(-1)
		switch {
		case ctx.Err() != nil:
		case a.ok():
			t.took = append(t.took, a.took())
		default:
			t.refused++
			t.example = a
			// At the earliest when it was told to, and not all at once.
			_ = pause(ctx, time.Duration((1+rand.Float64())*float64(max(a.after, 100*time.Millisecond))))
		}
	}
	return t
}
