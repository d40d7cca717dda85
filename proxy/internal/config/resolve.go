package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// runtime makes of manifests what the operator makes of them, with the same code.
func (m *manifests) runtime() (*Runtime, error) {
	bridge, err := m.bridge()
	if err != nil {
		return nil, err
	}
	namespace := bridge.object.Namespace
	pool, poolErr := resolve(m.pools, bridge.where, "spec.accountPoolRef.name", "AccountPool",
		id{namespace, bridge.object.Spec.AccountPoolRef.Name})
	var circuit foundCircuit
	var circuitErr error
	if ref := bridge.object.Spec.CircuitPolicyRef; ref != nil {
		circuit, circuitErr = resolve(m.circuits, bridge.where, "spec.circuitPolicyRef.name", "CircuitPolicy", id{namespace, ref.Name})
	}
	if err := errors.Join(poolErr, circuitErr); err != nil {
		return nil, err
	}
	b, err := effectiveBundle(bridge, pool, circuit)
	if err != nil {
		return nil, err
	}
	c, unresolved := effective.Credentials(pool.object, bridge.object, func(name string) (map[string][]byte, bool) {
		s, ok := m.secrets[id{namespace, name}]
		return s.object, ok
	})
	rt, err := New(b.Seal(), c.Seal())
	if err != nil {
		return nil, err
	}
	rt.Warnings = m.warnings(bridge, pool, circuit, unresolved)
	return rt, nil
}

// bridge is the one BridgePolicy of the folder.
func (m *manifests) bridge() (foundBridge, error) {
	var places []string
	var last foundBridge
	for _, b := range m.bridges {
		last, places = b, append(places, b.where)
	}
	slices.Sort(places)
	switch len(places) {
	case 1:
		return last, nil
	case 0:
		return last, errors.New("no BridgePolicy found: put exactly one into the folder, beside its AccountPool and Secrets")
	default:
		return last, fmt.Errorf("%d BridgePolicies found, a proxy serves one: leave one of %s", len(places), strings.Join(places, "; "))
	}
}

func resolve[T any](objects map[id]found[T], where, at, kind string, want id) (found[T], error) {
	object, ok := objects[want]
	switch {
	case ok:
		return object, nil
	case want.name == "":
		return object, fmt.Errorf("%s: %s: missing: name the %s to use", where, at, kind)
	default:
		return object, fmt.Errorf("%s: %s: there is no %s %s in namespace %s: %s",
			where, at, kind, shown(want.name), shown(want.namespace), others(objects))
	}
}

// others says what one could have meant.
func others[T any](objects map[id]found[T]) string {
	if len(objects) == 0 {
		return "add its manifest to the folder"
	}
	names := make([]string, 0, len(objects))
	for i := range objects {
		names = append(names, shown(i.namespace)+"/"+shown(i.name))
	}
	slices.Sort(names)
	return "there is " + strings.Join(names, ", ")
}

// effectiveBundle applies defaults and judges all three objects.
func effectiveBundle(bridge foundBridge, pool foundPool, circuit foundCircuit) (bundle.Bundle, error) {
	p, poolErrs := effective.Pool(pool.object)
	c, circuitErrs := effective.Circuit(circuit.object)
	if err := errors.Join(judged(pool.where, poolErrs), judged(circuit.where, circuitErrs)); err != nil {
		return bundle.Bundle{}, err
	}
	b, bridgeErrs := effective.Bridge(bridge.object, p, c)
	return b, judged(bridge.where, bridgeErrs)
}

// judged renders errors without the values at fault.
func judged(where string, list field.ErrorList) error {
	errs := make([]error, len(list))
	for i, e := range list {
		text := fmt.Sprintf("%s: %s: %s", where, e.Field, strings.ToLower(e.Type.String()))
		if e.Detail != "" {
			text += ": " + e.Detail
		}
		errs[i] = errors.New(text)
	}
	return errors.Join(errs...)
}

func (m *manifests) warnings(bridge foundBridge, pool foundPool, circuit foundCircuit, unresolved []effective.Unresolved) []string {
	warnings := slices.Clone(m.ignored)
	later := func(where string, paths []string) {
		for _, p := range paths {
			warnings = append(warnings, fmt.Sprintf("%s: %s is accepted and not yet effective", where, p))
		}
	}
	later(bridge.where, effective.NotYetEffective(bridge.object))
	later(pool.where, effective.NotYetEffective(pool.object))
	if circuit.object != nil {
		later(circuit.where, effective.NotYetEffective(circuit.object))
	}
	for _, u := range unresolved {
		warnings = append(warnings, unresolvedWarning(bridge.where, pool.where, u))
	}
	// The other risks are about the number of replicas, which a folder has not.
	if effective.SettingsOf(bridge.object).ClientsMode == v1alpha1.ClientsOpen {
		warnings = append(warnings, bridge.where+": spec.clients.mode is Open: whoever reaches the port can spend the pool")
	}
	for _, w := range effective.AnnotationWarnings(bridge.object) {
		warnings = append(warnings, bridge.where+": "+w.Message)
	}
	for _, w := range effective.PoolWarnings(pool.object) {
		warnings = append(warnings, pool.where+": "+w.Message)
	}
	slices.Sort(warnings)
	return slices.Compact(warnings)
}

func unresolvedWarning(bridge, pool string, u effective.Unresolved) string {
	switch {
	case u.Account != "":
		return fmt.Sprintf("%s: account %s is not usable (%s): %s", pool, shown(u.Account), u.Reason, u.Message)
	case u.Store:
		return fmt.Sprintf("%s: the store has no password (%s): %s", bridge, u.Reason, u.Message)
	case u.Client != "":
		return fmt.Sprintf("%s: client %s is not let in (%s): %s", bridge, shown(u.Client), u.Reason, u.Message)
	default:
		return fmt.Sprintf("%s: no client is let in (%s): %s", bridge, u.Reason, u.Message)
	}
}

// files sorts names, so that the same folder gives the same messages.
func files(raw map[string][]byte) []string { return slices.Sorted(maps.Keys(raw)) }
