package gitops

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"sigs.k8s.io/yaml"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

var script = filepath.Join("..", "..", "hack", "argocd", "health.lua")

// statuses that Argo CD knows.
var statuses = map[string]bool{"Healthy": true, "Progressing": true, "Degraded": true, "Suspended": true}

// TestPain15_HealthForArgoCD runs the script over samples, whose first lines say what
// is expected.
func TestPain15_HealthForArgoCD(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.yaml"))
	if err != nil || len(files) < 10 {
		t.Fatalf("found only %v: %v", files, err)
	}
	said := map[string]bool{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			wantStatus, wantMessage := expectation(t, string(raw))
			status, message := health(t, resource(t, raw))
			if status != wantStatus || message != wantMessage {
				t.Errorf("got %s: %q\nwant %s: %q", status, message, wantStatus, wantMessage)
			}
			said[status] = true
		})
	}
	for status := range statuses {
		if !said[status] {
			t.Errorf("no sample is %s", status)
		}
	}
}

// TestTheScriptKnowsTheWords: it compares with names that the operator uses.
func TestTheScriptKnowsTheWords(t *testing.T) {
	raw, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{
		v1alpha1.ConditionPaused, v1alpha1.ConditionReconciling, v1alpha1.ConditionUpToDate, v1alpha1.ConditionStalled,
		v1alpha1.ConditionReady, v1alpha1.ReasonPromotionPending, v1alpha1.ReasonConfigPending, v1alpha1.ReasonNoReports,
		v1alpha1.ReasonNoReadyReplicas,
	} {
		if !strings.Contains(string(raw), fmt.Sprintf("%q", word)) {
			t.Errorf("the script does not look for %s", word)
		}
	}
}

func expectation(t *testing.T, text string) (status, message string) {
	t.Helper()
	for _, line := range strings.Split(text, "\n") {
		if rest, ok := strings.CutPrefix(line, "# health: "); ok {
			status = rest
		}
		if rest, ok := strings.CutPrefix(line, "# message: "); ok {
			message = rest
		}
	}
	if !statuses[status] {
		t.Fatalf("the sample does not begin with '# health: STATUS'")
	}
	return status, message
}

// resource reads a sample as its kind, so that none can have what the API has not, and
// returns it as Argo CD sees it.
func resource(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	var kind struct{ Kind string }
	if err := yaml.Unmarshal(raw, &kind); err != nil {
		t.Fatal(err)
	}
	typed, ok := map[string]any{
		v1alpha1.KindAccountPool: &v1alpha1.AccountPool{}, v1alpha1.KindCircuitPolicy: &v1alpha1.CircuitPolicy{},
		v1alpha1.KindBridgePolicy: &v1alpha1.BridgePolicy{},
	}[kind.Kind]
	if !ok {
		t.Fatalf("unknown kind %s", kind.Kind)
	}
	if err := yaml.UnmarshalStrict(raw, typed); err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	text, err := yaml.YAMLToJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// health runs the script with the basic functions alone: in Argo CD, libraries are off
// unless somebody turns them on.
func health(t *testing.T, object map[string]any) (status, message string) {
	t.Helper()
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	if err := state.CallByParam(lua.P{Fn: state.NewFunction(lua.OpenBase), Protect: true}, lua.LString(lua.BaseLibName)); err != nil {
		t.Fatal(err)
	}
	state.SetGlobal("obj", value(state, object))
	if err := state.DoFile(script); err != nil {
		t.Fatal(err)
	}
	answer, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script returned %s", state.Get(-1).Type())
	}
	return answer.RawGetString("status").String(), answer.RawGetString("message").String()
}

// value turns JSON into values of Lua.
func value(state *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case string:
		return lua.LString(v)
	case float64:
		return lua.LNumber(v)
	case bool:
		return lua.LBool(v)
	case []any:
		table := state.NewTable()
		for _, element := range v {
			table.Append(value(state, element))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for key, element := range v {
			table.RawSetString(key, value(state, element))
		}
		return table
	default:
		return lua.LNil
	}
}
