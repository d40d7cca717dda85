package account

import "time"

// Share is the part of the pool's limits that this replica may spend: Rank (from
// 0) of Replicas. The zero value, and one replica, is all of it.
type Share struct{ Replicas, Rank int }

// Of is the share of one limit: floor(limit/replicas), one more for the first
// limit mod replicas ranks, and never below 1, so that no replica is useless. 0
// stays 0, which is no limit.
func (s Share) Of(limit int64) int64 {
	if limit <= 0 || s.Replicas <= 1 {
		return max(limit, 0)
	}
	replicas, rank := int64(s.Replicas), int64(s.Rank)
	part := limit / replicas
	if rank < limit%replicas {
		part++
	}
	return max(part, 1)
}

// stableTime is how long a membership has to last before a share grows: replicas
// that come and go within it would spend more together than the limit.
const stableTime = 60 * time.Second

// shares is the share in force and the one that was seen last.
type shares struct {
	now, seen Share
	since     time.Time
}

// observe takes in the membership as it is seen now. What makes the share smaller
// holds at once, what makes it larger after it has been stable for a minute.
func (s *shares) observe(seen Share, now time.Time) {
	if seen != s.seen || s.since.IsZero() {
		if s.since.IsZero() {
			s.now = seen // the first one; nothing has been spent
		}
		s.seen, s.since = seen, now
	}
	// Of falls with either number.
	s.now = Share{Replicas: max(s.now.Replicas, seen.Replicas), Rank: max(s.now.Rank, seen.Rank)}
	if now.Sub(s.since) >= stableTime {
		s.now = s.seen
	}
}
