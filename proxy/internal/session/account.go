package session

import (
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/outcome"
)

// affectAccount tells the account what an attempt meant for it.
func (a *actor) affectAccount(f *flight, v Verdict, e Evidence) {
	if f.lease == nil {
		return
	}
	now := a.now()
	var until time.Time // none: the account has a floor for each reason
	if fault := e.Last.Fault; fault != nil {
		if t, ok := account.ResetHint(fault.Header, fault.Raw, now); ok {
			until = t
		}
	}
	name := f.lease.Account().Name
	switch v.Account {
	case outcome.AccountNone:
	case outcome.AccountGood:
		a.services.Accounts.Succeeded(name)
	case outcome.AccountCoolDown:
		f.lease.CoolDown(until, account.ReasonRateLimited)
	case outcome.AccountQuota:
		f.lease.CoolDown(until, account.ReasonQuotaExhausted)
	case outcome.AccountRefresh:
		f.lease.CoolDown(now.Add(rejectedPause), account.ReasonAuthRejected)
	case outcome.AccountDeactivated:
		f.lease.CoolDown(now.Add(rejectedPause), account.ReasonDeactivated)
	case outcome.AccountUnreachable:
		f.lease.CoolDown(now.Add(connectPause), account.ReasonConnectFailed)
	case outcome.AccountModel, outcome.AccountSuspect:
	}
}

// Pauses of an account when the upstream gives no time of its own.
const (
	rejectedPause = 5 * time.Minute
	connectPause  = 2 * time.Second
)
