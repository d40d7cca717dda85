package session

import (
	"time"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/outcome"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// affectAccount tells the account what an attempt meant for it. Call it before
// the attempt's permit ends.
func (a *actor) affectAccount(f *flight, v Verdict, e Evidence) {
	if f.lease == nil {
		return
	}
	now := a.now()
	var until time.Time // none: the account has a pause of its own for each reason
	if fault := e.Last.Fault; fault != nil {
		if t, ok := account.ResetHint(fault.Header, fault.Raw, now); ok {
			until = t
		}
	}
	accounts, name := a.services.Accounts, f.lease.Account().Name
	switch v.Account {
	case outcome.AccountNone:
	case outcome.AccountGood:
		f.lease.Succeeded()
	case outcome.AccountCoolDown:
		f.cooled = f.lease.CoolDown(until, account.ReasonRateLimited)
	case outcome.AccountQuota:
		f.cooled = f.lease.CoolDown(until, account.ReasonQuotaExhausted)
	case outcome.AccountRefresh:
		f.lease.CoolDown(now.Add(rejectedPause), account.ReasonAuthRejected)
	case outcome.AccountDeactivated:
		f.lease.CoolDown(time.Time{}, account.ReasonDeactivated)
	case outcome.AccountUnreachable:
		f.lease.CoolDown(now.Add(connectPause), account.ReasonConnectFailed)
	case outcome.AccountModel:
		accounts.Lacks(name, clone(f.turn.Facts.Model))
	case outcome.AccountSuspect:
		a.suspect(f, e)
	}
}

// suspect notes a weak sign against the account.
func (a *actor) suspect(f *flight, e Evidence) {
	name := f.lease.Account().Name
	switch {
	case e.Last.Fault != nil:
		a.services.Accounts.Failed(name) // the upstream's own word about it
	case f.permit == nil || f.permit.RouteClosed():
		a.services.Accounts.Eventless(name)
	default: // the route is at fault until the contrary is known
	}
}

// Pauses of an account when the upstream gives no time of its own.
const (
	rejectedPause = 5 * time.Minute
	connectPause  = 2 * time.Second
)

// observeUsage passes on what an event or a header tells of the account's windows.
func (a *actor) observeUsage(f *flight, usage account.Usage) {
	if f.lease != nil && usage.Known() {
		a.services.Accounts.Observe(f.lease.Account().Name, usage)
	}
}

// spend counts the tokens of a response that has ended.
func (f *flight) spend(e *upstream.Event) {
	if f.lease == nil || e == nil || !e.Kind.Terminal() {
		return
	}
	f.lease.Spent(gjson.Get(view(e.Data), "response.usage.total_tokens").Int())
}
