package config

import (
	"encoding/base64"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causeway-dev/causeway/api/bundle"
)

// The manifests of a small bridge. Tests change one thing.
const (
	poolYAML = `apiVersion: causeway.dev/v1alpha1
kind: AccountPool
metadata:
  name: team
spec:
  provider:
    type: OpenAIPlatform
  accounts:
  - name: first
    apiKey:
      secretRef: {name: openai, key: first}
    limits:
      maxConcurrent: 3
  - name: second
    apiKey:
      secretRef: {name: openai, key: second}
`
	circuitYAML = `apiVersion: causeway.dev/v1alpha1
kind: CircuitPolicy
metadata:
  name: patient
spec:
  deadlines:
    firstEventSeconds: 240
`
	bridgeYAML = `apiVersion: causeway.dev/v1alpha1
kind: BridgePolicy
metadata:
  name: chat
spec:
  accountPoolRef:
    name: team
  circuitPolicyRef:
    name: patient
  clients:
    keysSecretRef:
      name: clients
`
	keysYAML = `apiVersion: v1
kind: Secret
metadata:
  name: openai
stringData:
  first: ` + canary + `
  second: ` + canary + `2
`
	clientsYAML = `apiVersion: v1
kind: Secret
metadata:
  name: clients
stringData:
  alice: cwk-alice
`
)

func sample() map[string]string {
	return map[string]string{"pool.yaml": poolYAML, "circuit.yml": circuitYAML, "bridge.yaml": bridgeYAML,
		"keys.yaml": keysYAML, "clients.yaml": clientsYAML}
}

// edited is the sample with one text replaced in one file.
func edited(t *testing.T, file, old, text string) map[string]string {
	t.Helper()
	files := sample()
	if !strings.Contains(files[file], old) {
		t.Fatalf("%s does not contain %q", file, old)
	}
	files[file] = strings.Replace(files[file], old, text, 1)
	return files
}

func TestLoadManifests(t *testing.T) {
	rt, err := Load(folder(t, sample()))
	check(t, err)
	if rt.Bundle.Name != "chat" || rt.Bundle.Namespace != "default" || rt.Deadlines.FirstEvent.Seconds() != 240 {
		t.Errorf("bundle %+v", rt.Bundle)
	}
	if got := rt.Bundle.Pool.Accounts[0].MaxConcurrent; got != 3 {
		t.Errorf("maxConcurrent %d, want 3", got)
	}
	if got := rt.Credentials.Accounts["second"].Bearer(); got != canary+"2" {
		t.Error("the second account has not its key")
	}
	if name, ok := rt.Client("cwk-alice"); name != "alice" || !ok {
		t.Error("alice is not let in")
	}
	if len(rt.Warnings) != 0 {
		t.Errorf("warnings %q", rt.Warnings)
	}
}

// What the project itself offers to apply works without a cluster too.
func TestLoadSamples(t *testing.T) {
	rt, err := Load(filepath.Join("..", "..", "..", "config", "samples"))
	check(t, err)
	if len(rt.Warnings) != 0 || len(rt.Credentials.Accounts) == 0 || len(rt.Credentials.Clients) == 0 {
		t.Errorf("warnings %q, %d accounts, %d clients", rt.Warnings, len(rt.Credentials.Accounts), len(rt.Credentials.Clients))
	}
}

// However the same objects are written down, they are the same configuration.
func TestManifestForms(t *testing.T) {
	want, err := Load(folder(t, sample()))
	check(t, err)
	all := strings.Join([]string{poolYAML, circuitYAML, bridgeYAML, keysYAML, clientsYAML}, "---\n")
	indent := func(text string) string {
		return "- " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
	}
	encoded := strings.NewReplacer("stringData", "data", canary+"2", base64.StdEncoding.EncodeToString([]byte(canary+"2")),
		canary+"\n", base64.StdEncoding.EncodeToString([]byte(canary))+"\n").Replace(keysYAML)
	forms := map[string]map[string]string{
		"one file":                  {"all.yaml": all},
		"comments and empty parts":  {"all.yaml": "# ours\n---\n---\n" + strings.ReplaceAll(all, "---\n", "--- # next\n# more\n") + "\n---\n"},
		"Windows line ends":         {"all.yaml": strings.ReplaceAll(all, "\n", "\r\n")},
		"a List":                    {"all.yaml": "apiVersion: v1\nkind: List\nitems:\n" + indent(poolYAML) + indent(circuitYAML) + indent(bridgeYAML) + indent(keysYAML) + indent(clientsYAML)},
		"lists of kinds":            {"a.yaml": "apiVersion: causeway.dev/v1alpha1\nkind: AccountPoolList\nmetadata: {}\nitems:\n" + indent(poolYAML), "b.yaml": strings.Join([]string{circuitYAML, bridgeYAML, keysYAML, clientsYAML}, "---\n")},
		"base64":                    {"a.yaml": encoded, "b.yaml": strings.Join([]string{poolYAML, circuitYAML, bridgeYAML, clientsYAML}, "---\n")},
		"stringData over data":      {"a.yaml": strings.Replace(keysYAML, "stringData:", "data: {first: b2xk}\nstringData:", 1), "b.yaml": strings.Join([]string{poolYAML, circuitYAML, bridgeYAML, clientsYAML}, "---\n")},
		"digest instead of the key": edited(t, "clients.yaml", "cwk-alice", bundle.KeyDigest("cwk-alice")),
		"namespace written out":     {"all.yaml": strings.ReplaceAll(all, "metadata:\n", "metadata:\n  namespace: default\n")},
		"as read from a cluster": edited(t, "pool.yaml", "  name: team\n", "  name: team\n  uid: x\n  resourceVersion: \"7\"\n  creationTimestamp: \"2026-03-01T00:00:00Z\"\n"+
			"  managedFields:\n  - manager: kubectl\n    fieldsV1: {f:spec: {}}\n"),
	}
	for name, files := range forms {
		t.Run(name, func(t *testing.T) {
			got, err := Load(folder(t, files))
			check(t, err)
			if got.Hash != want.Hash {
				t.Errorf("another configuration: %s", cmp.Diff(want.Bundle, got.Bundle))
			}
		})
	}
}

func TestManifestsResetCircuits(t *testing.T) {
	rt, err := Load(folder(t, edited(t, "bridge.yaml", "  name: chat\n", "  name: chat\n  annotations: {causeway.dev/reset-circuits: 2026-03-01.a}\n")))
	check(t, err)
	before, err := Load(folder(t, edited(t, "bridge.yaml", "name: chat", "name: chat")))
	check(t, err)
	if rt.Bundle.ResetCircuits != "2026-03-01.a" || len(rt.Warnings) > 0 || rt.Hash == before.Hash {
		t.Errorf("reset %q, warnings %q, want the annotation's value in a configuration that differs", rt.Bundle.ResetCircuits, rt.Warnings)
	}
}

func TestManifestWarnings(t *testing.T) {
	cases := []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"missing Secret", edited(t, "keys.yaml", "name: openai", "name: other"), "pool.yaml: AccountPool/team: account first is not usable (SecretNotFound)"},
		{"wrong key name", edited(t, "keys.yaml", "  second:", "  secnod:"), "pool.yaml: AccountPool/team: account second is not usable (KeyNotFound)"},
		{"a key that cannot be a header", edited(t, "keys.yaml", canary+"2", `"`+canary+` 2"`), "account second is not usable (InvalidValue)"},
		{"no clients", edited(t, "clients.yaml", "name: clients", "name: other"), "bridge.yaml: BridgePolicy/chat: no client is let in (SecretNotFound)"},
		{"a client without prefix", edited(t, "clients.yaml", "cwk-alice", canary), "bridge.yaml: BridgePolicy/chat: client alice is not let in (InvalidValue)"},
		{"Secret of another namespace", edited(t, "keys.yaml", "name: openai", "name: openai\n  namespace: prod"), "account first is not usable (SecretNotFound)"},
		{"no password of the store", edited(t, "bridge.yaml", "  clients:\n", "  store: {type: Redis, redis: {addresses: ['a:1'], authSecretRef: {name: redis, key: x}}}\n  clients:\n"),
			"bridge.yaml: BridgePolicy/chat: the store has no password (SecretNotFound): spec.store.redis.authSecretRef: Secret redis does not exist"},
		{"open to all", edited(t, "bridge.yaml", "    keysSecretRef:\n      name: clients", "    mode: Open"), "spec.clients.mode is Open"},
		{"a reset that cannot be used", edited(t, "bridge.yaml", "  name: chat\n", "  name: chat\n  annotations: {causeway.dev/reset-circuits: '"+canary+" now'}\n"),
			"bridge.yaml: BridgePolicy/chat: annotation causeway.dev/reset-circuits must be"},
		{"a force that cannot be used", edited(t, "bridge.yaml", "  name: chat\n", "  name: chat\n  annotations: {causeway.dev/force-circuits: '"+canary+"'}\n"),
			"bridge.yaml: BridgePolicy/chat: annotation causeway.dev/force-circuits entry 1"},
		{"another kind", edited(t, "clients.yaml", "apiVersion: v1\n", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n---\napiVersion: v1\n"),
			"clients.yaml, document 1: ConfigMap/x is ignored"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			rt, err := Load(folder(t, c.files))
			check(t, err)
			all := strings.Join(rt.Warnings, "\n")
			if !strings.Contains(all, c.want) {
				t.Errorf("warnings %q, want %q", rt.Warnings, c.want)
			}
			if strings.Contains(all, canary) {
				t.Errorf("a warning quotes a secret: %s", all)
			}
		})
	}
	// What does not work leaves the rest alone.
	rt, err := Load(folder(t, edited(t, "keys.yaml", "  second:", "  secnod:")))
	check(t, err)
	if rt.Credentials.Accounts["first"].Bearer() == "" {
		t.Error("the first account suffers from the second's key")
	}
}

func TestB60_MalformedManifests(t *testing.T) {
	without := func(file string) map[string]string {
		files := sample()
		delete(files, file)
		return files
	}
	plus := func(file, text string) map[string]string {
		files := sample()
		files[file] = text
		return files
	}
	cases := []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"no bridge", without("bridge.yaml"), "no BridgePolicy found"},
		{"two bridges", plus("z.yaml", strings.Replace(bridgeYAML, "chat", "batch", 1)),
			"2 BridgePolicies found, a proxy serves one: leave one of bridge.yaml: BridgePolicy/chat; z.yaml: BridgePolicy/batch"},
		{"unknown model pool", edited(t, "bridge.yaml", "name: team", "name: tema"),
			"bridge.yaml: BridgePolicy/chat: spec.accountPoolRef.name: there is no AccountPool tema in namespace default: there is default/team"},
		{"no pool at all", without("pool.yaml"), "spec.accountPoolRef.name: there is no AccountPool team in namespace default: add its manifest"},
		{"pool of another namespace", edited(t, "pool.yaml", "name: team", "name: team\n  namespace: prod"), "there is prod/team"},
		{"unknown circuit", without("circuit.yml"), "spec.circuitPolicyRef.name: there is no CircuitPolicy patient"},
		{"no reference", edited(t, "bridge.yaml", "  accountPoolRef:\n    name: team\n", ""), "spec.accountPoolRef.name: missing"},
		{"misspelt field", edited(t, "bridge.yaml", "  circuitPolicyRef:", "  circutPolicyRef:"), "bridge.yaml: BridgePolicy/chat: spec.circutPolicyRef: unknown field"},
		{"misspelt field in a list", edited(t, "pool.yaml", "      maxConcurrent", "      maxConcurent"), "pool.yaml: AccountPool/team: spec.accounts[0].limits.maxConcurent: unknown field"},
		{"wrong case", edited(t, "pool.yaml", "maxConcurrent", "maxconcurrent"), "spec.accounts[0].limits.maxconcurrent: unknown field"},
		{"text for a number", edited(t, "pool.yaml", "maxConcurrent: 3", "maxConcurrent: many"), "limits.maxConcurrent: must be a whole number, is string"},
		{"huge number", edited(t, "pool.yaml", "maxConcurrent: 3", "maxConcurrent: 4711471147"), "limits.maxConcurrent: must be a whole number, is number"},
		{"text for a block", edited(t, "pool.yaml", "{name: openai, key: first}", canary), "apiKey.secretRef: must be an object with fields, is string"},
		{"a key pasted as field", edited(t, "pool.yaml", "{name: openai, key: first}", "{"+canary+"}"), "pool.yaml: AccountPool/team: spec.accounts[0].apiKey.secretRef.?: unknown field"},
		{"out of bounds", edited(t, "pool.yaml", "maxConcurrent: 3", "maxConcurrent: 0"), "pool.yaml: AccountPool/team: spec.accounts[0].limits.maxConcurrent: invalid value"},
		{"unknown choice", edited(t, "pool.yaml", "type: OpenAIPlatform", "type: OpenAI"), "spec.provider.type: unsupported value"},
		{"credentials in the endpoint", edited(t, "pool.yaml", "type: OpenAIPlatform", "type: OpenAIPlatform\n    endpoint: https://u:"+canary+"@host/v1"), "spec.provider.endpoint: invalid value"},
		{"broken relation", edited(t, "circuit.yml", "firstEventSeconds: 240", "firstEventSeconds: 1"), "circuit.yml: CircuitPolicy/patient: spec.deadlines"},
		{"twice the same object", plus("z.yaml", poolYAML), "z.yaml: AccountPool/team: metadata.name: also in pool.yaml: AccountPool/team"},
		{"no name", edited(t, "pool.yaml", "  name: team", "  labels: {a: b}"), "pool.yaml: AccountPool/?: metadata.name: missing"},
		{"old version", edited(t, "pool.yaml", "v1alpha1", "v1beta9"), "pool.yaml: AccountPool/team: apiVersion: not known for this kind: use causeway.dev/v1alpha1"},
		{"group forgotten", edited(t, "pool.yaml", "causeway.dev/v1alpha1", "v1"), "pool.yaml: AccountPool/team: apiVersion: not known for this kind"},
		{"misspelt kind", edited(t, "pool.yaml", "kind: AccountPool", "kind: AcountPool"), "pool.yaml: AcountPool/team: kind: not known"},
		{"no kind", edited(t, "pool.yaml", "kind: AccountPool", ""), "pool.yaml: apiVersion or kind is missing"},
		{"no object", plus("z.yaml", "just text"), "z.yaml: not a Kubernetes object"},
		{"tab", edited(t, "pool.yaml", "  provider:", "\tprovider:"), "pool.yaml: not valid YAML near line 6"},
		{"later document", plus("z.yaml", "# a\n---\nkind: A\n---\nkind: 'B\n"), "z.yaml, document 2: not valid YAML near line"},
		{"key set twice", edited(t, "pool.yaml", "      maxConcurrent: 3", "      maxConcurrent: 3\n      maxConcurrent: 4"), "pool.yaml: not valid YAML near line 14: a key is set twice"},
		{"broken Secret", edited(t, "keys.yaml", "  first: ", "  first: '"), "keys.yaml: not valid YAML near line"},
		{"alias in a Secret", edited(t, "keys.yaml", "  first: ", "  first: *"), "keys.yaml: not valid YAML: an alias has no anchor"},
		{"a key that is no text in a Secret", edited(t, "keys.yaml", "  first: ", "  ? {"+canary+": x}\n  : "), "keys.yaml: not valid YAML"},
		{"misplaced colon in a Secret", edited(t, "keys.yaml", "  first: ", "  first: a: "), "keys.yaml: not valid YAML near line 6: a ':' is out of place"},
		{"data without base64", edited(t, "keys.yaml", "stringData", "data"), "keys.yaml: Secret/openai: data[first]: must be base64"},
		{"a number as value", edited(t, "keys.yaml", canary+"2", "4711"), "keys.yaml: Secret/openai: stringData[second]: must be text"},
		{"text for stringData", edited(t, "keys.yaml", "stringData:\n  first: ", "stringData: "), "keys.yaml: not valid YAML"},
		{"stringData is text", plus("z.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: z}\nstringData: "+canary), "z.yaml: Secret/z: stringData: must be an object"},
		{"key beside data", plus("z.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: z}\nfirst: "+canary), "z.yaml: Secret/z: first: unknown field"},
		{"key in metadata", plus("z.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: z, token: "+canary+"}"), "z.yaml: Secret/z: metadata.token: unknown field"},
		{"a time that is none", edited(t, "pool.yaml", "name: team", "name: team\n  creationTimestamp: "+canary), "AccountPool/team: a value does not have the form of its field"},
		{"item of a List", plus("z.yaml", "apiVersion: v1\nkind: List\nitems:\n- kind: Secret\n- 7\n"), "z.yaml: items[1]: not a Kubernetes object"},
		{"bad certificate", edited(t, "pool.yaml", "type: OpenAIPlatform", "type: OpenAIPlatform\n    caBundle: x"), "spec.provider.caBundle"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load(folder(t, c.files))
			var r *Rejected
			if !errors.As(err, &r) || r.Reason != ReasonInvalid {
				t.Fatalf("error %v is no rejection", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q, want %q", err, c.want)
			}
			if strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "4711471147") {
				t.Errorf("the error quotes a value: %v", err)
			}
		})
	}
}

// All that is wrong is told at once.
func TestAllErrorsAreTold(t *testing.T) {
	files := edited(t, "pool.yaml", "maxConcurrent: 3", "maxConcurrent: 0")
	files["circuit.yml"] = strings.Replace(circuitYAML, "firstEventSeconds: 240", "firstEventSeconds: 0", 1)
	_, err := Load(folder(t, files))
	if err == nil || !strings.Contains(err.Error(), "pool.yaml") || !strings.Contains(err.Error(), "circuit.yml") {
		t.Errorf("error %v", err)
	}
}

func TestB60_WatchOfManifestsLogsNoSecret(t *testing.T) {
	v := newVolume(t, sample())
	s := watch(t, v.dir)
	s.change()
	v.swap(edited(t, "keys.yaml", "  first: ", "  first: *"))
	if err := s.reject(); strings.Contains(err.Error(), canary) {
		t.Errorf("the rejection quotes a secret: %v", err)
	}
	v.swap(edited(t, "keys.yaml", canary+"2", `"`+canary+` 3"`))
	if rt := s.change(); len(rt.Warnings) == 0 {
		t.Error("no warning")
	}
}

func FuzzManifests(f *testing.F) {
	for _, text := range sample() {
		f.Add([]byte(text))
	}
	f.Add([]byte(strings.Join([]string{poolYAML, circuitYAML, bridgeYAML, keysYAML, clientsYAML}, "---\n")))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List, items: [{}]}]"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := newManifests()
		if err := m.add("f.yaml", raw); err != nil {
			if !strings.HasPrefix(err.Error(), "f.yaml") {
				t.Errorf("the error does not name the file: %v", err)
			}
			return
		}
		if rt, err := m.runtime(); err == nil && rt.Hash == "" {
			t.Error("a configuration without hash")
		}
	})
}
