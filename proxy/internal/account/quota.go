package account

import (
	"fmt"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// Units of bundle.Quota.
const (
	unitRequests = "Requests"
	unitTokens   = "Tokens"
)

// budget is one quota of the pool: what this replica has spent of its share in the
// current window. It is not remembered over a restart.
type budget struct {
	bundle.Quota
	// limit and soft are this replica's share.
	limit, soft int64
	begin       time.Time
	spent       int64
}

// budgets are the quotas of a pool.
type budgets []budget

// update takes over quotas; what was spent stays spent by name and unit.
func (bs budgets) update(quotas []bundle.Quota, share Share) budgets {
	next := make(budgets, 0, len(quotas))
	for _, q := range quotas {
		b := budget{Quota: q}
		for _, old := range bs {
			if old.Name == q.Name && old.Unit == q.Unit && old.Window == q.Window {
				b.begin, b.spent = old.begin, old.spent
			}
		}
		next = append(next, b)
	}
	next.divide(share)
	return next
}

func (bs budgets) divide(share Share) {
	for i := range bs {
		b := &bs[i]
		b.limit = share.Of(b.Limit)
		b.soft = b.limit
		if p := int64(b.SoftLimitPercent); p > 0 {
			b.soft = max(1, b.limit/100*p+b.limit%100*p/100) // no overflow
		}
	}
}

// roll begins a new count when the window has changed.
func (b *budget) roll(now time.Time) {
	if begin, _ := calendar(b.Window, now); !begin.Equal(b.begin) {
		b.begin, b.spent = begin, 0
	}
}

func (bs budgets) spend(unit string, n int64, now time.Time) {
	for i := range bs {
		if b := &bs[i]; b.Unit == unit {
			b.roll(now)
			b.spent += n
		}
	}
}

// refuse says which quota leaves no room for a turn; nil = none. Of several it is
// the one that lasts longest. goesOn: the turn is of a conversation that has begun,
// which may spend what is left above the soft limit.
func (bs budgets) refuse(goesOn bool, now time.Time) *failure.Failure {
	var worst *budget
	var resets time.Time
	for i := range bs {
		b := &bs[i]
		b.roll(now)
		if b.spent < b.soft || goesOn && b.spent < b.limit {
			continue
		}
		if _, end := calendar(b.Window, now); end.After(resets) {
			worst, resets = b, end
		}
	}
	if worst == nil {
		return nil
	}
	return failure.New(failure.UsageLimitReached,
		fmt.Sprintf("The quota %q of this pool (%d %s per %s) is used up.", worst.Name, worst.Limit, worst.Unit, worst.Window),
		failure.Reason(causeBudget), failure.After(resets.Sub(now)), failure.ResetsAt(resets))
}

// causeBudget is the machine-readable cause of a refusal by a quota of the pool.
const causeBudget = "pool_quota"

// calendar is the window that holds now, in UTC; weeks begin on Monday. What is
// not known to this version is a month, the strictest reading of a limit.
func calendar(window string, now time.Time) (begin, end time.Time) {
	now = now.UTC()
	day := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.UTC)
	switch window {
	case "Minute":
		begin = now.Truncate(time.Minute)
		return begin, begin.Add(time.Minute)
	case "Hour":
		begin = now.Truncate(time.Hour)
		return begin, begin.Add(time.Hour)
	case "Day":
		return day, day.AddDate(0, 0, 1)
	case "Week":
		begin = day.AddDate(0, 0, -(int(day.Weekday())+6)%7)
		return begin, begin.AddDate(0, 0, 7)
	default:
		begin = day.AddDate(0, 0, 1-day.Day())
		return begin, begin.AddDate(0, 1, 0)
	}
}
