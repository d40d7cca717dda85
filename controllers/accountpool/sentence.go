package accountpool

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"

	apieffective "github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// sentence says why the account is as it is, until when, and what to do; empty
// when there is nothing to say. What matters comes first, since it may be cut.
func sentence(pool string, s v1alpha1.AccountStatus, spec *v1alpha1.Account, broken apieffective.Unresolved) string {
	switch s.State {
	case v1alpha1.AccountConditionUsable:
		if s.Reason == "LocalLimit" {
			return "Its limits in the spec hold turns back: if that stays, raise them or add accounts."
		}
		return ""
	case v1alpha1.AccountConditionDisabled:
		return "It is disabled by the spec: set its state to Enabled to use it."
	case v1alpha1.AccountConditionDraining:
		return "It takes no new sessions, by the spec: set its state to Enabled to use it."
	case v1alpha1.AccountConditionReauthRequired:
		return rejected(s, spec, broken)
	case v1alpha1.AccountConditionQuotaExhausted:
		return exhausted(pool, s)
	case v1alpha1.AccountConditionCoolingDown:
		return coolingText(s)
	default:
		return unknownText(s, broken)
	}
}

// exhausted names the command that has the account tried at once, if it fits.
func exhausted(pool string, s v1alpha1.AccountStatus) string {
	why := "Its quota is used up" + untilText(s) + probeText(s)
	full := fmt.Sprintf("%s; to have it tried now: kubectl annotate ap %s %s=%s=$(date +%%s) --overwrite", why,
		pool, v1alpha1.AnnotationResetCooldowns, s.Name)
	if len(full) <= v1alpha1.MaxAccountMessage {
		return full
	}
	return why + "; to have it tried now, give the pool annotation " + v1alpha1.AnnotationResetCooldowns + " with a new text."
}

// reasonTokenRejected is of a login that the operator is about to refresh.
const reasonTokenRejected = "TokenRejected"

// coolingText tells cool-downs apart that a human can do something about.
func coolingText(s v1alpha1.AccountStatus) string {
	switch s.Reason {
	case "RateLimited":
		return "The provider limits its rate" + untilText(s) + ": nothing to do, turns go to other accounts meanwhile."
	case reasonTokenRejected:
		return "The provider rejects its access token: nothing to do, the operator refreshes it; condition RefreshHealthy tells if it cannot."
	case "ConnectFailed":
		return "Connections for it fail; it is left alone" + untilText(s) +
			": if that stays, look at the network and at provider.endpoint of the pool."
	case "Ejected":
		return "Several turns in a row broke on it; it is left alone" + untilText(s) +
			": if that comes back, look at the log of the proxies for what broke."
	default:
		return fmt.Sprintf("It failed (%s) and is left alone%s: if that stays, look at the log of the proxies.",
			cmp.Or(s.Reason, "for a reason not told"), untilText(s))
	}
}

func rejected(s v1alpha1.AccountStatus, spec *v1alpha1.Account, broken apieffective.Unresolved) string {
	switch {
	case broken.Message != "":
		return whole(broken.Message)
	case gone[s.Reason]:
		return "The provider says that the account is deactivated: settle it there, or set its state to Disabled."
	case spec.OAuth != nil:
		ref := spec.OAuth.SeedSecretRef
		return fmt.Sprintf("The provider rejects its login: log in again (causeway-operator login) into key %s of Secret %s.", ref.Key, ref.Name)
	case spec.APIKey != nil:
		ref := spec.APIKey.SecretRef
		return fmt.Sprintf("The provider rejects its API key: put a valid one into key %s of Secret %s.", ref.Key, ref.Name)
	default:
		return "The provider rejects its credential: replace it."
	}
}

// gone are reasons that no new credential helps against.
var gone = map[string]bool{"Deactivated": true}

func unknownText(s v1alpha1.AccountStatus, broken apieffective.Unresolved) string {
	switch {
	case broken.Message != "":
		return whole(broken.Message)
	case s.Reason == v1alpha1.ReasonNoReports:
		return "No proxy reports about it: look at condition ReportsFresh of the BridgePolicies that use the pool."
	case s.Reason == v1alpha1.ReasonConfigPending || s.Reason == "NoCredential":
		return "The proxies have not taken it over yet: if that stays, look at condition Programmed of their BridgePolicy."
	default:
		return "The proxies do not know it well enough to use it: if that stays, look at their log."
	}
}

func untilText(s v1alpha1.AccountStatus) string {
	if s.Until == nil {
		return ""
	}
	return " until " + minute(s.Until).Format("2006-01-02 15:04 UTC")
}

func probeText(s v1alpha1.AccountStatus) string {
	if s.NextProbe == nil || s.Until != nil && !s.NextProbe.Before(s.Until) {
		return ""
	}
	return "; a turn tries it from " + minute(s.NextProbe).Format("15:04 UTC") + " on"
}

// whole makes a sentence of a fragment.
func whole(text string) string {
	return strings.ToUpper(text[:1]) + strings.TrimSuffix(text[1:], ".") + "."
}

// cut shortens text at a rune.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const ellipsis = "…"
	end := limit - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}
