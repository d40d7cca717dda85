package share

import (
	"slices"
	"strings"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/account"
)

// Cooler holds the cool-downs of this replica; account.Registry is one. Those that it lists, and no others,
// are shared: they must be about the account, not about the way of this replica to
// it, nor about a credential that siblings may not have.
type Cooler interface {
	// CoolDowns lists the shared cool-downs that run.
	CoolDowns() []account.CoolDownOf
	// SwapCoolDown replaces the end of a cool-down, if it still is was; zero times
	// stand for none. It says whether it did: not if it is another by now, or if
	// there is no such account.
	SwapCoolDown(account, reason string, was, until time.Time) bool
}

// CoolDowns is the Source of the cool-downs of accounts: what an upstream told one
// replica of an account holds for all, also after a restart. A reset, or a turn
// that shows that the account works, ends it everywhere.
type CoolDowns struct {
	cooler Cooler
	me     string
	facts  map[string]fact
}

// NewCoolDowns makes the source. me is text without spaces that names this process
// like no other.
func NewCoolDowns(c Cooler, me string) *CoolDowns {
	return &CoolDowns{cooler: c, me: me, facts: map[string]fact{}}
}

// Board is a Source's.
func (c *CoolDowns) Board() string { return "cooldowns" }

// Learn is a Source's.
func (c *CoolDowns) Learn(items []Item, now time.Time) {
	told := map[string]fact{}
	for _, item := range items {
		s, ok := parseStamp(string(item.Value))
		if _, _, named := splitName(item.Name); ok && named {
			told[item.Name] = fact{s, now.Add(min(item.Left, account.MaxCoolDown))}
		}
	}
	local := map[string]time.Time{}
	for _, running := range c.cooler.CoolDowns() {
		local[joinName(running.Account, running.Reason)] = running.Until
	}
	for name := range names(c.facts, told, local) {
		var t *fact
		if f, ok := told[name]; ok {
			t = &f
		}
		c.settle(name, local[name], t, now)
	}
}

func (c *CoolDowns) settle(name string, local time.Time, told *fact, now time.Time) {
	next := settle(c.facts[name], local, told, c.me, now)
	if until := next.until(now); !same(until, local, now) {
		of, reason, _ := splitName(name)
		if !c.cooler.SwapCoolDown(of, reason, local, until) {
			return // there is news, which the next exchange will see, or no such account
		}
	}
	if next.seq == 0 || !next.ends.Add(grace).After(now) {
		delete(c.facts, name)
		return
	}
	c.facts[name] = next
}

// Local is a Source's.
func (c *CoolDowns) Local(now time.Time) []Item {
	var items []Item
	for name, f := range c.facts {
		if left := f.ends.Sub(now); left > 0 {
			items = append(items, Item{Name: name, Value: []byte(f.String()), Left: left})
		}
	}
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Name, b.Name) })
	return items
}

func joinName(account, reason string) string { return account + "/" + reason }

func splitName(name string) (account, reason string, ok bool) {
	account, reason, ok = strings.Cut(name, "/")
	return account, reason, ok && account != "" && reason != "" && !strings.Contains(reason, "/")
}

func names(facts, told map[string]fact, local map[string]time.Time) map[string]struct{} {
	all := map[string]struct{}{}
	for name := range facts {
		all[name] = struct{}{}
	}
	for name := range told {
		all[name] = struct{}{}
	}
	for name := range local {
		all[name] = struct{}{}
	}
	return all
}
