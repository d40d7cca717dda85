package circuit

import "time"

// buckets divide the window. The newest few are judged by themselves as well.
const (
	buckets = 12
	newest  = 2
)

type bucket struct {
	start              time.Time
	failed, direct, ok int
}

// window counts the samples of the last while, in a fixed number of buckets.
type window struct {
	ring [buckets]bucket
	at   int // the newest
}

// current is the bucket of now.
func (w *window) current(length time.Duration, now time.Time) *bucket {
	width := length / buckets
	b := &w.ring[w.at]
	switch {
	case b.start.IsZero():
		b.start = now
	case now.Sub(b.start) >= width:
		// A pause of any length takes one step: buckets are dropped by their age.
		w.at = (w.at + 1) % buckets
		b = &w.ring[w.at]
		*b = bucket{start: now}
	}
	return b
}

// sums adds up what is not older than length, and of it the newest buckets.
func (w *window) sums(length time.Duration, now time.Time) (all, fresh bucket) {
	for i := range w.ring {
		b := w.ring[(w.at-i+buckets)%buckets]
		if b.start.IsZero() || now.Sub(b.start) > length {
			continue
		}
		all.add(b)
		if i < newest && now.Sub(b.start) <= length/(buckets/newest) {
			fresh.add(b)
		}
	}
	return all, fresh
}

func (b *bucket) add(o bucket) {
	b.failed, b.direct, b.ok = b.failed+o.failed, b.direct+o.direct, b.ok+o.ok
}

// bad says whether at least minimum samples are there and percent of them failed.
func (b *bucket) bad(failed, minimum, percent int) bool {
	total := b.failed + b.ok
	return total >= minimum && failed*100 >= percent*total
}

// maxDistinct is the most accounts or callers that a policy can ask for.
const maxDistinct = 64

type sighting struct {
	who uint64
	at  time.Time
}

// distinct remembers when each of a bounded number was seen last; the one that
// was seen longest ago makes room.
type distinct struct{ seen []sighting }

func (d *distinct) see(who uint64, now time.Time) {
	if who == 0 {
		return // nobody
	}
	oldest := 0
	for i := range d.seen {
		if d.seen[i].who == who {
			d.seen[i].at = now
			return
		}
		if d.seen[i].at.Before(d.seen[oldest].at) {
			oldest = i
		}
	}
	if len(d.seen) < maxDistinct {
		d.seen = append(d.seen, sighting{who, now})
		return
	}
	d.seen[oldest] = sighting{who, now}
}

// since counts those that were seen at or after a time.
func (d *distinct) since(t time.Time) int {
	n := 0
	for _, s := range d.seen {
		if !s.at.Before(t) {
			n++
		}
	}
	return n
}

// run is the failures since the last success.
type run struct {
	failed, direct    int
	accounts, callers distinct
}

// track is one side of attempts: how they start, or how they end.
type track struct {
	window            window
	run               run
	accounts, callers distinct // among the failures of the window
}

func (t *track) good(length time.Duration, now time.Time) {
	t.run = run{}
	t.window.current(length, now).ok++
}

func (t *track) failed(length time.Duration, direct bool, w who, now time.Time) {
	current := t.window.current(length, now)
	current.failed++
	t.run.failed++
	if direct {
		current.direct++
		t.run.direct++
	}
	t.run.accounts.see(w.account, now)
	t.run.callers.see(w.caller, now)
	t.accounts.see(w.account, now)
	t.callers.see(w.caller, now)
}

// judge says whether a circuit opens, and why; active is the number of callers.
func (t *track) judge(p Policy, active int, now time.Time) (reason string, bad bool) {
	spread := p.enoughAccounts(len(t.run.accounts.seen)) && p.enoughCallers(len(t.run.callers.seen), active)
	if t.run.direct >= p.Consecutive || t.run.failed >= p.Consecutive && spread {
		return byRun, true
	}
	since := now.Add(-p.Window)
	spread = p.enoughAccounts(t.accounts.since(since)) && p.enoughCallers(t.callers.since(since), active)
	all, fresh := t.window.sums(p.Window, now)
	share := func(of func(*bucket) int) bool {
		// A busy route need not wait until failures outweigh a whole window of
		// successes: its newest part is enough, with twice the samples.
		return all.bad(of(&all), p.MinSamples, p.Percent) || fresh.bad(of(&fresh), 2*p.MinSamples, p.Percent)
	}
	return byShare, share(func(x *bucket) int { return x.direct }) || spread && share(func(x *bucket) int { return x.failed })
}

// who is where a sample comes from; zero = unknown.
type who struct{ account, caller uint64 }

// limitMemory is how long limits of several accounts count as one event, and
// maxLimits how many are remembered.
const (
	limitMemory = 30 * time.Second
	maxLimits   = 64
)

type limit struct {
	who
	at      time.Time
	counted bool
}

// limits are refusals of accounts for their own limits. Each alone is the
// account's; many at once are the route's.
type limits struct{ list []limit }

// hit adds one. If those of the last while are of at least minimum accounts it
// returns those of them that it has not returned before.
func (l *limits) hit(w who, minimum int, now time.Time) []who {
	kept := l.list[:0]
	for _, x := range l.list {
		if now.Sub(x.at) < limitMemory {
			kept = append(kept, x)
		}
	}
	if len(kept) == maxLimits {
		kept = append(kept[:0], kept[1:]...)
	}
	l.list = append(kept, limit{who: w, at: now})
	var accounts distinct
	for _, x := range l.list {
		accounts.see(x.account, x.at)
	}
	if len(accounts.seen) < minimum {
		return nil
	}
	var news []who
	for i := range l.list {
		if !l.list[i].counted {
			l.list[i].counted = true
			news = append(news, l.list[i].who)
		}
	}
	return news
}
