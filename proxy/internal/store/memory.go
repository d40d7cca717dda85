package store

import (
	"bytes"
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"
)

// What a Memory holds at most; the oldest goes first. A full one is some 64 MiB.
const (
	maxEntries     = 65_536
	maxAliases     = 65_536
	maxRecords     = 65_536
	maxTranscripts = 32 << 20 // bytes
)

// memory is a Store within one process. Its mutex is held for a few map
// operations at a time.
type memory struct {
	now func() time.Time

	mu      sync.Mutex // guards all below
	epochs  int64      // the last one given out, of any key
	entries map[Key]*memoryEntry
	// free are entries without a holder, held those with one; both the one
	// untouched longest first.
	free, held *list.List

	aliases *shelf[string, []byte]
	records *records
	boards  *shelf[string, *board]
	permits *shelf[string, *holders]
}

type memoryEntry struct {
	key          Key
	holder       Holder
	epoch, fence int64
	leaseUntil   time.Time
	draining     bool
	version      int64
	value        []byte
	valueUntil   time.Time
	place        *list.Element
}

// NewMemory makes a Store that lives and dies with its process: the default of a
// bridge without Redis. It is bounded and cheap: no goroutine, no IO. now is the
// clock of its leases and lives. Ownership works as in every Store, so that
// several simulated replicas can share one.
func NewMemory(now func() time.Time) Backend {
	return &memory{
		now: now, entries: map[Key]*memoryEntry{}, free: list.New(), held: list.New(),
		aliases: newShelf[string, []byte](maxAliases, nil), records: newRecords(),
		boards: newShelf[string, *board](maxBoards, nil), permits: newShelf[string, *holders](maxPermits, nil),
	}
}

func (m *memory) Close() error { return nil }

func (m *memory) SetPassword(string) {}

// begin locks the store for one operation, unless ctx is over.
func (m *memory) begin(ctx context.Context) (now time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	m.mu.Lock()
	return m.now(), nil
}

func (m *memory) Claim(ctx context.Context, key Key, me Holder, fence int64, lease time.Duration) (Claimed, error) {
	now, err := m.begin(ctx)
	if err != nil {
		return Claimed{}, err
	}
	defer m.mu.Unlock()
	e := m.find(key, now)
	var before Entry
	if e != nil {
		before = e.view(now)
		if fence < e.fence || before.Lease > 0 && e.holder.Pod != me.Pod {
			return Claimed{}, fenced(key, before)
		}
	} else {
		e = m.insert(key, now)
	}
	m.epochs++
	e.holder, e.epoch, e.fence, e.draining = me, m.epochs, fence, false
	e.leaseUntil = now.Add(lease)
	m.touch(e)
	held := Held{Key: key, Holder: me, Epoch: e.epoch, Fence: fence}
	return Claimed{Held: held, Before: before, Turns: m.records.of(key, now)}, nil
}

func (m *memory) Renew(ctx context.Context, keys []Held, lease time.Duration) []error {
	errs := make([]error, len(keys))
	now, err := m.begin(ctx)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer m.mu.Unlock()
	for i, h := range keys {
		var e *memoryEntry
		if e, errs[i] = m.owned(h, now); errs[i] == nil {
			e.leaseUntil = now.Add(lease)
		}
	}
	return errs
}

func (m *memory) Drain(ctx context.Context, h Held) error {
	return m.write(ctx, h, func(e *memoryEntry, _ time.Time) error {
		e.draining = true
		return nil
	})
}

func (m *memory) Release(ctx context.Context, h Held) error {
	now, err := m.begin(ctx)
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	e := m.find(h.Key, now)
	if e != nil && e.holder.Same(h.Holder) && e.epoch == h.Epoch {
		e.holder, e.leaseUntil, e.draining = Holder{}, now, false
		m.touch(e)
	}
	return nil
}

func (m *memory) Save(ctx context.Context, h Held, version int64, value []byte, life time.Duration) error {
	return m.write(ctx, h, func(e *memoryEntry, now time.Time) error {
		if e.view(now).Version < version {
			e.version, e.value, e.valueUntil = version, bytes.Clone(value), now.Add(life)
		}
		return nil
	})
}

func (m *memory) Look(ctx context.Context, key Key) (Entry, error) {
	now, err := m.begin(ctx)
	if err != nil {
		return Entry{}, err
	}
	defer m.mu.Unlock()
	if e := m.find(key, now); e != nil {
		if seen := e.view(now); seen.Lease > 0 || seen.Version > 0 {
			return seen, nil
		}
	}
	return Entry{}, ErrNotFound
}

func (m *memory) PutAlias(ctx context.Context, name string, value []byte, life time.Duration) error {
	now, err := m.begin(ctx)
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	m.aliases.put(name, bytes.Clone(value), now, life)
	return nil
}

func (m *memory) Alias(ctx context.Context, name string) ([]byte, error) {
	now, err := m.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	if value, ok := m.aliases.get(name, now); ok {
		return value, nil
	}
	return nil, ErrNotFound
}

// write does what only the owner may do.
func (m *memory) write(ctx context.Context, h Held, do func(*memoryEntry, time.Time) error) error {
	now, err := m.begin(ctx)
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	e, err := m.owned(h, now)
	if err != nil {
		return err
	}
	return do(e, now)
}

// owned finds the entry that h may write.
func (m *memory) owned(h Held, now time.Time) (*memoryEntry, error) {
	e := m.find(h.Key, now)
	if e == nil {
		return nil, fenced(h.Key, Entry{})
	}
	if !e.holder.Same(h.Holder) || e.epoch != h.Epoch || h.Fence < e.fence {
		return nil, fenced(h.Key, e.view(now))
	}
	e.fence = h.Fence
	m.touch(e)
	return e, nil
}

func fenced(key Key, current Entry) *Fenced {
	current.Value = nil
	return &Fenced{Key: key, Current: current}
}

// find returns an entry that has not expired.
func (m *memory) find(key Key, now time.Time) *memoryEntry {
	e := m.entries[key]
	if e != nil && e.expired(now) {
		m.remove(e)
		return nil
	}
	return e
}

func (e *memoryEntry) expired(now time.Time) bool {
	return !now.Before(e.leaseUntil.Add(fenceMemory)) && !now.Before(e.valueUntil)
}

// view is the entry as others see it.
func (e *memoryEntry) view(now time.Time) Entry {
	seen := Entry{Epoch: e.epoch, Fence: e.fence}
	if e.holder != (Holder{}) && now.Before(e.leaseUntil) {
		seen.Holder, seen.Lease, seen.Draining = e.holder, e.leaseUntil.Sub(now), e.draining
	}
	if now.Before(e.valueUntil) {
		seen.Version, seen.Value = e.version, e.value
	}
	return seen
}

// touch puts an entry to the end of the list it belongs to.
func (m *memory) touch(e *memoryEntry) {
	m.unlist(e)
	if e.holder == (Holder{}) {
		e.place = m.free.PushBack(e)
	} else {
		e.place = m.held.PushBack(e)
	}
}

func (m *memory) unlist(e *memoryEntry) {
	if e.place != nil {
		m.free.Remove(e.place) // an element of another list is left alone
		m.held.Remove(e.place)
		e.place = nil
	}
}

func (m *memory) remove(e *memoryEntry) {
	m.unlist(e)
	delete(m.entries, e.key)
}

// insert makes room and an empty entry. Each call also looks at the oldest of
// both lists, so that what has expired goes without a goroutine.
func (m *memory) insert(key Key, now time.Time) *memoryEntry {
	for _, l := range []*list.List{m.free, m.held} {
		if e := oldest(l); e != nil && e.expired(now) {
			m.remove(e)
		}
	}
	if len(m.entries) >= maxEntries {
		m.remove(m.victim(now))
	}
	e := &memoryEntry{key: key}
	m.entries[key] = e
	return e
}

func oldest(l *list.List) *memoryEntry {
	if l.Front() == nil {
		return nil
	}
	e, _ := l.Front().Value.(*memoryEntry)
	return e
}

// victim is an entry without an owner; if all have one, the one whose owner was
// heard of longest ago, so that those whose lease is over come first.
func (m *memory) victim(now time.Time) *memoryEntry {
	if e := oldest(m.free); e != nil {
		return e
	}
	const most = 8 // leases of different length can be out of order
	element := m.held.Front()
	for range most {
		if element == nil {
			break
		}
		if e, _ := element.Value.(*memoryEntry); !now.Before(e.leaseUntil) {
			return e
		}
		element = element.Next()
	}
	return oldest(m.held)
}
