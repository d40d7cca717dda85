package accountpool

import (
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/conditions"
)

// tally counts the accounts that shall take turns.
type tally struct {
	all, usable, cooling, quota, reauth, unknown int
	// broken is why the first of the unknown ones cannot be used; empty = nobody
	// has said.
	broken string
}

func tallyOf(accounts []v1alpha1.AccountStatus) (n tally) {
	for _, a := range accounts {
		switch a.State {
		case v1alpha1.AccountConditionDisabled, v1alpha1.AccountConditionDraining:
			continue
		case v1alpha1.AccountConditionUsable:
			n.usable++
		case v1alpha1.AccountConditionCoolingDown:
			n.cooling++
		case v1alpha1.AccountConditionQuotaExhausted:
			n.quota++
		case v1alpha1.AccountConditionReauthRequired:
			n.reauth++
		default:
			if n.unknown++; n.broken == "" && wanted(a) {
				n.broken = a.Reason
			}
		}
		n.all++
	}
	return n
}

// setUsable says whether any account can take a turn and, if none can, whether
// time will help or a human has to.
func setUsable(l *conditions.List, s *v1alpha1.AccountPoolStatus) {
	const kind = v1alpha1.ConditionUsable
	const none = "No account can take a turn: "
	n := tallyOf(s.Accounts)
	switch {
	case n.usable > 0:
		l.True(kind, v1alpha1.ReasonAccountsUsable, "At least one account can take a turn.")
	case n.all == 0:
		l.False(kind, v1alpha1.ReasonNoAccountEnabled, "No account is enabled.")
	case n.quota+n.cooling > 0:
		l.False(kind, v1alpha1.ReasonAllCoolingDown, none+n.waiting()+".")
	case n.reauth > 0:
		l.False(kind, v1alpha1.ReasonAllReauthRequired, none+"some need a new credential; status.accounts says which and how.")
	case n.broken != "" && n.unknown == n.all:
		l.False(kind, n.broken, none+"their credentials cannot be used; status.accounts says why.")
	default:
		l.Unknown(kind, v1alpha1.ReasonNoReports, "No proxy has reported about these accounts.")
	}
}

// waiting says what there is to wait for.
func (n tally) waiting() string {
	switch {
	case n.quota == 0:
		return "they cool down; status.accounts says why and until when"
	case n.reauth == 0:
		return "quotas are used up; status.accounts says until when, and how to have them tried sooner"
	default:
		return "quotas are used up and some need a new credential; status.accounts says which and until when"
	}
}
