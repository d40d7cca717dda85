package effective

import (
	"fmt"
	"regexp"

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

// AnnotationWarnings lists the annotations of ours that cannot be used. An
// annotation never makes a policy unacceptable: the spec is not at fault.
func AnnotationWarnings(b *v1alpha1.BridgePolicy) []Warning {
	if token := b.Annotations[v1alpha1.AnnotationResetCircuits]; token == "" || ResetToken(b) != "" {
		return nil
	}
	return []Warning{{Reason: v1alpha1.ReasonInvalidAnnotation, Message: fmt.Sprintf(
		"annotation %s must be up to %d letters, digits and any of . _ : + -, starting with a letter or digit: "+
			"set it to a text not used before, such as the time; no circuit was closed",
		v1alpha1.AnnotationResetCircuits, v1alpha1.MaxResetToken)}}
}
