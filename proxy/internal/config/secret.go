package config

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// secretFields are the fields of a Secret. It is decoded by hand, so that no
// decoder's error can quote a value.
var secretFields = []string{"apiVersion", "kind", "metadata", "type", "data", "stringData", "immutable"}

func (m *manifests) addSecret(where string, raw []byte) error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return fmt.Errorf("%s: not an object", where)
	}
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(secretFields, name) {
			problems = append(problems, shownPath(name)+": unknown field: keys belong below data or stringData")
		}
	}
	var meta metav1.ObjectMeta
	if len(fields["metadata"]) > 0 {
		problems = append(problems, prefixed("metadata", decodeStrict(fields["metadata"], &meta))...)
	}
	data := map[string][]byte{}
	problems = append(problems, readValues(fields["data"], "data", data, fromBase64)...)
	// As in a cluster, stringData wins.
	problems = append(problems, readValues(fields["stringData"], "stringData", data, asText)...)
	return keep(m.secrets, where, data, &meta, problems)
}

func prefixed(parent string, problems []string) []string {
	for i, p := range problems {
		problems[i] = parent + "." + p
	}
	return problems
}

// readValues reads one of the two maps of a Secret.
func readValues(raw json.RawMessage, field string, into map[string][]byte, convert func(string) ([]byte, string)) []string {
	if len(raw) == 0 {
		return nil
	}
	var values map[string]json.RawMessage
	if json.Unmarshal(raw, &values) != nil {
		return []string{field + ": must be an object with one field per key"}
	}
	var problems []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		at := fmt.Sprintf("%s[%s]", field, shown(key))
		var text *string
		if json.Unmarshal(values[key], &text) != nil {
			problems = append(problems, at+": must be text: put the value into quotes")
			continue
		}
		if text == nil {
			into[key] = nil
			continue
		}
		value, problem := convert(*text)
		if problem != "" {
			problems = append(problems, at+": "+problem)
			continue
		}
		into[key] = value
	}
	return problems
}

func asText(text string) ([]byte, string) { return []byte(text), "" }

func fromBase64(text string) ([]byte, string) {
	value, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, "must be base64: encode the value, or write it as it is below stringData"
	}
	return value, ""
}
