package effective

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// forcedRoute is a host with its port, and perhaps API family and transport, as
// proxies report their routes.
var forcedRoute = regexp.MustCompile(`^[-A-Za-z0-9.:_\[\]]{1,259}(/[-a-z0-9]{1,63}/[a-z]{1,16})?$`)

// ForcedCircuits is the value of the annotation that forces breakers; empty =
// none, or one that cannot be used.
func ForcedCircuits(b *v1alpha1.BridgePolicy) []bundle.ForcedCircuit {
	forced, _ := forcedCircuits(b.Annotations[v1alpha1.AnnotationForceCircuits])
	return forced
}

// forcedCircuits reads the annotation; fault says what is wrong with it, without
// anything of its value.
func forcedCircuits(value string) (forced []bundle.ForcedCircuit, fault string) {
	if value == "" {
		return nil, ""
	}
	entries := strings.Split(value, ",")
	if len(entries) > v1alpha1.MaxForcedCircuits {
		return nil, fmt.Sprintf("has %d entries, more than %d", len(entries), v1alpha1.MaxForcedCircuits)
	}
	for i, entry := range entries {
		route, wish, _ := strings.Cut(strings.TrimSpace(entry), "=")
		state, end, _ := strings.Cut(wish, "@")
		until, err := time.Parse(time.RFC3339, end)
		switch {
		case !forcedRoute.MatchString(route):
			return nil, fmt.Sprintf("entry %d names no route", i+1)
		case state != bundle.CircuitOpen && state != bundle.CircuitClosed:
			return nil, fmt.Sprintf("entry %d has a state that is neither Open nor Closed", i+1)
		case err != nil:
			return nil, fmt.Sprintf("entry %d has no end in RFC 3339", i+1)
		}
		forced = append(forced, bundle.ForcedCircuit{Route: route, State: state, Until: until.UTC()})
	}
	return forced, ""
}

// forceWarning says why the annotation cannot be used.
func forceWarning(b *v1alpha1.BridgePolicy) []Warning {
	_, fault := forcedCircuits(b.Annotations[v1alpha1.AnnotationForceCircuits])
	if fault == "" {
		return nil
	}
	return []Warning{{Reason: v1alpha1.ReasonInvalidAnnotation, Message: fmt.Sprintf(
		"annotation %s %s: set it to ROUTE=Open@TIME or ROUTE=Closed@TIME, several with commas between them, "+
			"such as api.openai.com=Open@2030-01-31T12:00:00Z; no circuit is forced", v1alpha1.AnnotationForceCircuits, fault)}}
}
