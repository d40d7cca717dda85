package main

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/causeway-dev/causeway/test/upstream"
)

// The stalled account: the first of the pool accepts turns and never answers.
// Turns that only it can serve fill it up, and as many again as the waiting room
// holds wait for it. The turns on the other accounts must not notice.
const (
	stallConcurrent = 8   // live turns of each account
	stallWaiters    = 200 // turns that only the stalled account serves
	stallRate       = 30  // turns a second on the others
	// stallPatience is how long a turn may take whose account answers.
	stallPatience = 15 * time.Second
	// stallSettle is how long the turns that wait get until all of them do: they are
	// sent at once.
	stallSettle = time.Second

	modelAny  = "lab"       // all accounts serve it
	modelOnly = "lab-first" // only the first does
)

func runStall(ctx context.Context, b *bed, s settings) (section, error) {
	part := section{title: fmt.Sprintf("Stall: one of %d accounts accepts and never answers; %d turns wait for it, %d a second go to the pool, %d rounds of %g s",
		accounts, stallWaiters, stallRate, s.rounds, s.seconds)}
	to, err := b.start(ctx, pool{clients: []string{"steady", "stuck"}, models: modelAny, maxConcurrent: stallConcurrent,
		policy: "deadlines: {firstEventSeconds: 120}, bulkheads: [{lane: HTTP, mode: Limited, maxConcurrent: 200, maxQueued: 400, queueTimeoutSeconds: 60}]"})
	if err != nil {
		return part, err
	}
	w := &stallWorld{bed: b, to: to, steady: b.caller(to, "steady"), stuck: b.caller(to, "stuck"), lasting: time.Duration(s.seconds * float64(time.Second))}
	if _, err := w.measure(ctx, time.Second); err != nil { // connections are there from here on
		return part, err
	}
	var alone, beside stallRound
	for range s.rounds {
		r, err := w.measure(ctx, w.lasting)
		if err != nil {
			return part, err
		}
		alone.add(r)
		if r, err = w.stalled(ctx); err != nil {
			return part, err
		}
		beside.add(r)
	}
	part.figures = []figure{
		{name: "turns on the other accounts, p50", unit: "ms", reference: quantile(alone.took, 0.5), measured: quantile(beside.took, 0.5), digits: 1},
		{name: "turns on the other accounts, p99", unit: "ms", reference: quantile(alone.took, 0.99), measured: quantile(beside.took, 0.99), times: 1.1, digits: 1},
		{name: "turns of those served by another account", unit: "%", reference: percent(len(alone.took), alone.asked),
			measured: percent(len(beside.took), beside.asked), digits: 1},
		{name: "turns refused or cut", reference: float64(alone.failed), measured: float64(beside.failed), never: true},
		{name: "turns at the stalled account", reference: none(), measured: float64(beside.hung) / float64(s.rounds), most: stallConcurrent, digits: 1},
	}
	if beside.failed > 0 {
		return part, fmt.Errorf("%d turns on accounts that answer were not served, for example %s", beside.failed, beside.example)
	}
	return part, nil
}

type stallWorld struct {
	*bed
	to            *replica
	steady, stuck *caller
	lasting       time.Duration
}

// stallRound is what came of the turns of some rounds.
type stallRound struct {
	took          []time.Duration // on other accounts than the first
	asked, failed int
	hung          int // turns at the stalled account
	example       answer
}

func (r *stallRound) add(other stallRound) {
	r.took = append(r.took, other.took...)
	r.asked, r.failed, r.hung = r.asked+other.asked, r.failed+other.failed, r.hung+other.hung
	if other.failed > 0 {
		r.example = other.example
	}
}

// measure sends turns to the pool and sorts them by account.
func (w *stallWorld) measure(ctx context.Context, lasting time.Duration) (stallRound, error) {
	bounded, cancel := context.WithTimeout(ctx, lasting+stallPatience)
	defer cancel()
	answers := w.steady.paced(bounded, stallRate, lasting, modelAny, func() string { return "" })
	if ctx.Err() != nil {
		return stallRound{}, context.Cause(ctx)
	}
	where := w.accountsOf()
	r := stallRound{asked: len(answers)}
	for _, a := range answers {
		switch first := where[a.mark] == accountName(0); {
		case first: // served or hung, it is no business of the others
		case a.ok():
			r.took = append(r.took, a.took())
		default:
			r.failed++
			r.example = a
		}
	}
	if len(r.took) == 0 {
		return r, fmt.Errorf("no turn was served by another account than the first, for example %s", r.example)
	}
	return r, nil
}

// stalled measures while the first account hangs and others wait for it.
func (w *stallWorld) stalled(ctx context.Context) (stallRound, error) {
	w.up.Ledger().Clear()
	if err := w.up.Script(script(upstream.Rule{Match: upstream.Match{Account: accountName(0)}, Fault: &upstream.Fault{Action: upstream.ActMute}})); err != nil {
		return stallRound{}, err
	}
	waiting, leave := context.WithCancel(ctx)
	var all sync.WaitGroup
	for range stallWaiters {
		all.Go(func() { w.stuck.ask(waiting, time.Now(), modelOnly, "") })
	}
	defer func() {
		leave()
		all.Wait()
	}()
	if err := awaitTrue(ctx, "that the first account hangs", 20*time.Second, func() bool { return w.hung() >= stallConcurrent }); err != nil {
		return stallRound{}, err
	}
	if err := pause(ctx, stallSettle); err != nil {
		return stallRound{}, err
	}
	r, err := w.measure(ctx, w.lasting)
	if err != nil {
		return r, err
	}
	r.hung = w.hung()
	if err := w.up.Script(script()); err != nil {
		return r, err
	}
	leave()
	all.Wait()
	return r, awaitTrue(ctx, "that nothing hangs any more", 20*time.Second, func() bool { return w.up.Stats().InFlight == 0 })
}

// hung counts the turns that the first account has and does not answer.
func (w *stallWorld) hung() (n int) {
	for _, d := range w.up.Ledger().Dispatches() {
		if d.Account == accountName(0) && d.Ended.IsZero() {
			n++
		}
	}
	return n
}

// accountsOf are the accounts that turns went to, by their marks.
func (b *bed) accountsOf() map[string]string {
	where := map[string]string{}
	for _, d := range b.up.Ledger().Dispatches() {
		where[markOf(d.Body)] = d.Account
	}
	return where
}

// markOf finds the mark in a request.
func markOf(body []byte) string {
	const before = `"text":"`
	i := bytes.Index(body, []byte(before))
	if i < 0 {
		return ""
	}
	mark, _, _ := bytes.Cut(body[i+len(before):], []byte(" "))
	return string(mark)
}
