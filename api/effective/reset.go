package effective

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// resetToken holds a time in RFC 3339, a revision or a ticket; what it excludes
// has no place in a log line.
var resetToken = regexp.MustCompile(fmt.Sprintf(`^[A-Za-z0-9][-+.:_A-Za-z0-9]{0,%d}$`, v1alpha1.MaxResetToken-1))

// ResetToken is the value of the annotation that closes circuits; empty = none,
// or none that can be used.
func ResetToken(b *v1alpha1.BridgePolicy) string {
	if token := b.Annotations[v1alpha1.AnnotationResetCircuits]; resetToken.MatchString(token) {
		return token
	}
	return ""
}

// ResetCooldowns is the value of the annotation that ends cool-downs, TOKEN or
// ACCOUNT=TOKEN; empty = none, or none that can be used.
func ResetCooldowns(p *v1alpha1.AccountPool) string {
	value := p.Annotations[v1alpha1.AnnotationResetCooldowns]
	account, token, one := strings.Cut(value, "=")
	switch {
	case !one && resetToken.MatchString(value):
		return value
	case one && resetToken.MatchString(token) && hasAccount(p, account):
		return value
	default:
		return ""
	}
}

func hasAccount(p *v1alpha1.AccountPool, name string) bool {
	for i := range p.Spec.Accounts {
		if p.Spec.Accounts[i].Name == name {
			return true
		}
	}
	return false
}

// AnnotationWarnings lists the annotations of ours that cannot be used. An
// annotation never makes a policy unacceptable: the spec is not at fault.
func AnnotationWarnings(b *v1alpha1.BridgePolicy) []Warning {
	forced := forceWarning(b)
	if token := b.Annotations[v1alpha1.AnnotationResetCircuits]; token == "" || ResetToken(b) != "" {
		return forced
	}
	return append(forced, Warning{Reason: v1alpha1.ReasonInvalidAnnotation, Message: fmt.Sprintf(
		"annotation %s must be up to %d letters, digits and any of . _ : + -, starting with a letter or digit: "+
			"set it to a text not used before, such as the time; no circuit was closed",
		v1alpha1.AnnotationResetCircuits, v1alpha1.MaxResetToken)})
}

// PoolWarnings is AnnotationWarnings of a pool. A message holds nothing of the
// value but the name of an account that has the form of one.
func PoolWarnings(p *v1alpha1.AccountPool) []Warning {
	value := p.Annotations[v1alpha1.AnnotationResetCooldowns]
	if value == "" || ResetCooldowns(p) != "" {
		return nil
	}
	w := Warning{Reason: v1alpha1.ReasonInvalidAnnotation}
	account, token, one := strings.Cut(value, "=")
	if one && resetToken.MatchString(token) && len(account) <= 40 && labelName.MatchString(account) {
		w.Message = fmt.Sprintf("annotation %s names account %s, which the pool does not have: "+
			"set it to ACCOUNT=TEXT with an account of spec.accounts, or to TEXT for all of them; no cool-down was ended",
			v1alpha1.AnnotationResetCooldowns, account)
		return []Warning{w}
	}
	w.Message = fmt.Sprintf("annotation %s must be TEXT for all accounts or ACCOUNT=TEXT for one, TEXT being up to %d letters, digits "+
		"and any of . _ : + -, starting with a letter or digit: set it to a text not used before, such as the time; no cool-down was ended",
		v1alpha1.AnnotationResetCooldowns, v1alpha1.MaxResetToken)
	return []Warning{w}
}
