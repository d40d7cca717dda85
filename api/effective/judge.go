package effective

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// Origins of errors, by which Reason tells kinds of errors apart.
const (
	originInvariant = "invariant"
	originReserved  = "reserved"
)

// maxMessage is the longest message of a condition, in bytes.
const maxMessage = 512

// Reason is the reason of condition Accepted for what Pool, Circuit or Bridge
// found. An error in a field goes before a violated relation between fields.
func Reason(errs field.ErrorList) string {
	reason := v1alpha1.ReasonValid
	for _, err := range errs {
		switch err.Origin {
		case originInvariant:
			if reason == v1alpha1.ReasonValid {
				reason = v1alpha1.ReasonInvariantViolated
			}
		case originReserved:
			if reason == v1alpha1.ReasonValid || reason == v1alpha1.ReasonInvariantViolated {
				reason = v1alpha1.ReasonReservedLabel
			}
		default:
			return v1alpha1.ReasonInvalidSpec
		}
	}
	return reason
}

// Message sums up errors for a condition: the first one, and how many more there
// are. It has at most 512 bytes and is empty without errors.
func Message(errs field.ErrorList) string {
	if len(errs) == 0 {
		return ""
	}
	more := ""
	if n := len(errs) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	return cut(errs[0].Error(), maxMessage-len(more)) + more
}

// cut shortens s to at most n bytes and never splits a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const dots = "..."
	n -= len(dots)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + dots
}

// judge collects what is wrong with one object.
type judge struct{ errs field.ErrorList }

// rule reports a broken rule. It never quotes the value: the rule says which
// field it is about, and some fields may hold a credential by mistake.
func (j *judge) rule(ok bool, at *field.Path, message string) {
	if !ok {
		j.errs = append(j.errs, field.Invalid(at, field.OmitValueType{}, message))
	}
}

func (j *judge) reserved(ok bool, at *field.Path, message string) {
	if !ok {
		j.errs = append(j.errs, field.Invalid(at, field.OmitValueType{}, message).WithOrigin(originReserved))
	}
}

// invariant reports a broken relation in which at least one number is a default;
// the message has to give all numbers.
func (j *judge) invariant(ok bool, at *field.Path, format string, args ...any) {
	if !ok {
		j.errs = append(j.errs, field.Invalid(at, field.OmitValueType{}, fmt.Sprintf(format, args...)).WithOrigin(originInvariant))
	}
}

// required reports whether a text is there.
func (j *judge) required(at *field.Path, value string) bool {
	if value == "" {
		j.errs = append(j.errs, field.Required(at, ""))
		return false
	}
	return true
}

func (j *judge) length(at *field.Path, value string, most int) {
	if utf8.RuneCountInString(value) > most {
		j.errs = append(j.errs, field.TooLongMaxLength(at, field.OmitValueType{}, most))
	}
}

func (j *judge) items(at *field.Path, n, most int) {
	if n > most {
		j.errs = append(j.errs, field.TooMany(at, n, most))
	}
}

// number reports a number outside of its bounds; nil is unset and fine.
func number[T int32 | int64](j *judge, at *field.Path, value *T, low, high T) {
	if value != nil && (*value < low || *value > high) {
		j.errs = append(j.errs, field.Invalid(at, *value, fmt.Sprintf("must be from %d to %d", low, high)))
	}
}

// oneOf reports an unknown choice; "" is unset and fine.
func oneOf[T ~string](j *judge, at *field.Path, value T, known ...T) {
	if value == "" {
		return
	}
	for _, k := range known {
		if k == value {
			return
		}
	}
	j.errs = append(j.errs, field.NotSupported(at, value, known))
}

// distinct reports a list entry that repeats an earlier one.
func distinct[T ~string](j *judge, at *field.Path, keys []T) {
	seen := make(map[T]bool, len(keys))
	for i, key := range keys {
		if seen[key] {
			j.errs = append(j.errs, field.Duplicate(at.Index(i), key))
		}
		seen[key] = true
	}
}

var (
	objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	labelName  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	secretKey  = regexp.MustCompile(`^[-._a-zA-Z0-9]+$`)
)

const maxObjectName = 253

// object judges the name of another object; what is the field's own name.
func (j *judge) object(at *field.Path, what, value string) {
	j.length(at, value, maxObjectName)
	j.rule(objectName.MatchString(value), at, what+" must be an object name: lower-case letters, digits, '-' and '.', at most 253")
}

func (j *judge) reference(at *field.Path, ref v1alpha1.LocalObjectReference) {
	if j.required(at.Child("name"), ref.Name) {
		j.object(at.Child("name"), "name", ref.Name)
	}
}

func (j *judge) keyReference(at *field.Path, ref v1alpha1.SecretKeyReference) {
	j.reference(at, v1alpha1.LocalObjectReference{Name: ref.Name})
	if j.required(at.Child("key"), ref.Key) {
		j.length(at.Child("key"), ref.Key, maxObjectName)
		j.rule(secretKey.MatchString(ref.Key), at.Child("key"), "key must be a Secret key: letters, digits, '-', '_' and '.'")
	}
}

// metadata judges the object's own name, which only a folder can get wrong.
func (j *judge) metadata(name string) {
	at := field.NewPath("metadata", "name")
	if j.required(at, name) {
		j.object(at, "metadata.name", name)
	}
}

func isHTTPS(value string) bool {
	u, err := url.ParseRequestURI(value)
	return err == nil && strings.HasPrefix(value, "https://") && u.Hostname() != ""
}
