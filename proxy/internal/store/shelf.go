package store

import (
	"container/list"
	"time"
)

// shelf is a bounded map whose values expire, without a goroutine: what has
// expired goes when it is met, at the latest when it is the oldest. It is not
// safe for concurrent use.
type shelf[K comparable, V any] struct {
	limit int
	// gone is told of each value that leaves.
	gone  func(K, V)
	items map[K]*list.Element
	order *list.List // of *shelved[K, V], the one written longest ago first
}

type shelved[K comparable, V any] struct {
	key   K
	value V
	until time.Time
}

func newShelf[K comparable, V any](limit int, gone func(K, V)) *shelf[K, V] {
	return &shelf[K, V]{limit: limit, gone: gone, items: map[K]*list.Element{}, order: list.New()}
}

func (s *shelf[K, V]) get(key K, now time.Time) (V, bool) {
	if item := at[K, V](s.items[key]); item != nil {
		if now.Before(item.until) {
			return item.value, true
		}
		s.remove(key)
	}
	var none V
	return none, false
}

// put stores a value, in the place of one that is there: gone is not told of that.
func (s *shelf[K, V]) put(key K, value V, now time.Time, life time.Duration) {
	item := &shelved[K, V]{key: key, value: value, until: now.Add(life)}
	if element := s.items[key]; element != nil {
		element.Value = item
		s.order.MoveToBack(element)
		return
	}
	// Two go for one that comes, until what has expired is gone.
	for range 2 {
		if first := s.oldest(); first != nil && (len(s.items) >= s.limit || !now.Before(first.until)) {
			s.remove(first.key)
		}
	}
	s.items[key] = s.order.PushBack(item)
}

func (s *shelf[K, V]) remove(key K) {
	element := s.items[key]
	item := at[K, V](element)
	if item == nil {
		return
	}
	s.order.Remove(element)
	delete(s.items, key)
	if s.gone != nil {
		s.gone(item.key, item.value)
	}
}

func (s *shelf[K, V]) oldest() *shelved[K, V] { return at[K, V](s.order.Front()) }

func at[K comparable, V any](element *list.Element) *shelved[K, V] {
	if element == nil {
		return nil
	}
	item, _ := element.Value.(*shelved[K, V])
	return item
}

// all are the values that live, the one written longest ago first.
func (s *shelf[K, V]) all(now time.Time) []*shelved[K, V] {
	var live []*shelved[K, V]
	for element := s.order.Front(); element != nil; {
		next := element.Next()
		if item := at[K, V](element); now.Before(item.until) {
			live = append(live, item)
		} else {
			s.remove(item.key)
		}
		element = next
	}
	return live
}
