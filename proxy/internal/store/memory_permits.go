package store

import (
	"context"
	"time"
)

// maxPermits bounds the names of a Memory; a pool has 64 accounts.
const maxPermits = 1024

// holders have permits of one name, by pod.
type holders = shelf[string, memoryHolder]

type memoryHolder struct {
	holding
	process string
}

func (m *memory) LeasePermits(ctx context.Context, me Holder, asks []Ask, life time.Duration) []Grant {
	grants := make([]Grant, len(asks))
	now, err := m.begin(ctx)
	if err != nil {
		for i := range grants {
			grants[i].Err = err
		}
		return grants
	}
	defer m.mu.Unlock()
	for i, a := range asks {
		grants[i].Err = a.check(me)
		if grants[i].Err == nil {
			grants[i].Count, grants[i].Fair = m.lease(a.sane(), me, now, life)
		}
	}
	return grants
}

func (m *memory) lease(a Ask, me Holder, now time.Time, life time.Duration) (count, fair int) {
	all, ok := m.permits.get(a.Name, now)
	if !ok {
		all = newShelf[string, memoryHolder](maxPermits, nil)
	}
	var others []holding
	known := false
	longest := life
	for _, h := range all.all(now) {
		longest = max(longest, h.until.Sub(now))
		if h.key == me.Pod {
			known = h.value.process == me.Process
		} else {
			others = append(others, h.value.holding)
		}
	}
	count, fair = divide(a, me.Pod, known, others, now.UnixMilli()/permitTurn.Milliseconds())
	if a.over() {
		all.remove(me.Pod)
	} else {
		all.put(me.Pod, memoryHolder{holding{me.Pod, count, a.Need}, me.Process}, now, life)
	}
	m.permits.put(a.Name, all, now, longest)
	return count, fair
}
