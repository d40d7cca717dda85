package affinity

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestDeriveKeyPrecedence(t *testing.T) {
	all := []string{"x-codex-turn-state", "ts", "thread-id", "th", "session_id", "se"}
	for _, tc := range []struct {
		name string
		in   Source
		kind Kind
		hard bool
	}{
		{"row 2: turn state", Source{Header: header(all...)}, KindTurnState, true},
		{"row 2: a blank turn state is absent", Source{Header: header("x-codex-turn-state", "  ", "thread-id", "th")}, KindThread, true},
		{"row 3: thread", Source{Header: header("thread-id", "th", "session-id", "se")}, KindThread, true},
		{"row 4: session_id", Source{Header: header("session_id", "se")}, KindSession, true},
		{"row 4: session-id", Source{Header: header("session-id", "se")}, KindSession, true},
		{"row 4: x-codex-session-id", Source{Header: header("x-codex-session-id", "se")}, KindSession, true},
		{"row 4: x-codex-conversation-id", Source{Header: header("X-Codex-Conversation-Id", "se")}, KindSession, true},
		{"row 5: prompt cache key", Source{PromptCacheKey: "pc"}, KindPromptCache, false},
		{"row 5: request", Source{RequestID: "r1"}, KindRequest, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.in.Header == nil {
				tc.in.Header = http.Header{}
			}
			k := Derive(tc.in)
			if k.Kind != tc.kind || k.Kind.Hard() != tc.hard {
				t.Fatalf("got %v (hard %v), want %v (hard %v)", k.Kind, k.Kind.Hard(), tc.kind, tc.hard)
			}
		})
	}
}

func TestDeriveKeyIdentity(t *testing.T) {
	key := func(client, pck string, pairs ...string) Key {
		return Derive(Source{Client: client, PromptCacheKey: pck, Header: header(pairs...), RequestID: "r"})
	}
	for _, tc := range []struct {
		name  string
		a, b  Key
		equal bool
	}{
		{"same thread", key("c", "", "thread-id", "t"), key("c", "", "Thread-Id", " t "), true},
		{"B103: other client, same thread", key("c", "", "thread-id", "t"), key("d", "", "thread-id", "t"), false},
		{"thread alone is not thread in a process", key("c", "", "thread-id", "t"), key("c", "", "thread-id", "t", "session-id", "s"), false},
		{"siblings of one process", key("c", "", "thread-id", "t1", "session-id", "s"), key("c", "", "thread-id", "t2", "session-id", "s"), false},
		{"prompt cache key narrows a session", key("c", "p", "session-id", "s"), key("c", "", "session-id", "s"), false},
		{"prompt cache key does not narrow a thread", key("c", "p", "thread-id", "t"), key("c", "", "thread-id", "t"), true},
		{"no value can leave its kind", key("c", "", "session-id", "x"), key("c", "", "thread-id", "x"), false},
		{"frames cannot be shifted", key("ab", "", "session-id", "c"), key("a", "", "session-id", "bc"), false},
	} {
		if (tc.a == tc.b) != tc.equal {
			t.Errorf("%s: equal = %v", tc.name, tc.a == tc.b)
		}
	}
	if s := key("c", "", "session-id", "secret-session").String(); strings.Contains(s, "secret") {
		t.Errorf("key shows its value: %s", s)
	}
}

func TestProxyMade(t *testing.T) {
	hex := strings.Repeat("0a", 16)
	for token, want := range map[string]bool{"http_turn_" + hex: true, "turn_" + hex: true, "turn_" + hex + "0": false, "x": false, "http_turn_" + strings.ToUpper(hex): false} {
		if ProxyMade(token) != want {
			t.Errorf("ProxyMade(%q) = %v", token, !want)
		}
	}
}

func TestReadKeepsOffsets(t *testing.T) {
	body := []byte(`  {"model":"m", "stream":true,"input" : [ {"role":"user","content":"é"} , {"type":"function_call","call_id":"c1","name":"f","arguments":"{}"}],"store":false}`)
	f := Read(body)
	if f.Model != "m" || f.Store || !f.Generate {
		t.Fatalf("facts: %+v", f)
	}
	if got := string(body[f.Input.Start:f.Input.End]); !strings.HasPrefix(got, "[ {") || !strings.HasSuffix(got, "}]") {
		t.Fatalf("input = %q", got)
	}
	var items []string
	for _, i := range f.Input.Items {
		items = append(items, string(body[i.Start:i.End]))
	}
	want := []string{`{"role":"user","content":"é"}`, `{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"}`}
	if d := cmp.Diff(want, items); d != "" {
		t.Fatal(d)
	}
}

func TestCanonicalDigest(t *testing.T) {
	chainOf := func(item string) Digest {
		f := Read([]byte(`{"input":[` + item + `]}`))
		return f.Input.Items[0].Chain
	}
	base := chainOf(`{"type":"message","role":"user","content":"a\/bé","n":1.0}`)
	for item, equal := range map[string]bool{
		`{"n":1.0, "content":"a/bé" ,"role":"user","type":"message"}`: true,  // order, space, escapes
		`{"type":"message","role":"user","content":"a/bé","n":1}`:     false, // numbers stay as written
		`{"type":"message","role":"user","content":"a/be","n":1.0}`:   false,
		`{"type":"message","role":"user","content":["a/bé"],"n":1.0}`: false,
	} {
		if (chainOf(item) == base) != equal {
			t.Errorf("%s: equal = %v", item, !equal)
		}
	}
}

const (
	developer = `{"type":"message","role":"developer","content":[{"type":"input_text","text":"rules"}]}`
	ask       = `{"type":"message","role":"user","content":[{"type":"input_text","text":"do it"}]}`
	reasoning = `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"E"}`
	call      = `{"type":"function_call","id":"fc_1","status":"completed","call_id":"c1","name":"sh","arguments":"{\"a\":1}"}`
	result    = `{"type":"function_call_output","call_id":"c1","output":"ok"}`
	answer    = `{"id":"msg_1","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","annotations":[],"text":"done"}]}`
	ask2      = `{"type":"message","role":"user","content":"and now"}`
)

func inputOf(items ...string) Input {
	return Read([]byte(`{"model":"m","input":[` + strings.Join(items, ",") + `]}`)).Input
}

func TestClassify(t *testing.T) {
	prior := inputOf(developer, ask)
	known := &Known{Items: 2, Prefix: prior.Prefix(), Outputs: []Output{ReadOutput([]byte(reasoning)), ReadOutput([]byte(call))}}
	replayedReasoning := `{"type":"reasoning","id":"rs_1","summary":[],"content":null,"encrypted_content":"E"}`
	replayedCall := `{"type":"function_call","name":"sh","arguments":"{\"a\":1}","call_id":"c1"}`
	text := &Known{Items: 2, Prefix: prior.Prefix(), Outputs: []Output{ReadOutput([]byte(answer))}}
	for _, tc := range []struct {
		name  string
		in    Input
		known *Known
		class Class
		from  int
	}{
		{"first", inputOf(developer, ask), nil, ClassFirst, 0},
		{"orphan output and nothing known", inputOf(result), nil, ClassDelta, 0},
		{"tool turn replayed by Codex", inputOf(developer, ask, replayedReasoning, replayedCall, result), known, ClassFullProved, 4},
		{"tool turn without reasoning", inputOf(developer, ask, replayedCall, result), known, ClassFullProved, 3},
		{"text turn as a plain string", inputOf(developer, ask, `{"role":"assistant","content":"done"}`, ask2), text, ClassFullProved, 3},
		{"output was edited", inputOf(developer, ask, `{"role":"assistant","content":"DONE"}`, ask2), text, ClassFullPrefix, 0},
		{"output was dropped", inputOf(developer, ask, ask2), text, ClassFullPrefix, 0},
		{"nothing new", inputOf(developer, ask, `{"role":"assistant","content":"done"}`), text, ClassFullPrefix, 0},
		{"history rewritten", inputOf(developer, ask2, ask), text, ClassFull, 0},
		{"identical retry", inputOf(developer, ask), text, ClassFull, 0},
		{"single follow-up is whole by contract", inputOf(ask2), text, ClassFull, 0},
		{"Scenario 59: two tool outputs are a delta", inputOf(result, `{"type":"custom_tool_call_output","call_id":"c2","output":"x"}`), known, ClassDelta, 0},
		{"output and message", inputOf(result, ask2), known, ClassDelta, 0},
		{"call arguments were edited", inputOf(developer, ask, `{"type":"function_call","name":"sh","arguments":"{\"a\":2}","call_id":"c1"}`, result), known, ClassFullPrefix, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			class, from := Classify(tc.in, tc.known)
			if class != tc.class || from != tc.from {
				t.Fatalf("got %v from %d, want %v from %d", class, from, tc.class, tc.from)
			}
		})
	}
}

func TestStringInputIsWhole(t *testing.T) {
	f := Read([]byte(`{"model":"m","input":"hello"}`))
	if class, _ := Classify(f.Input, nil); class != ClassFirst || f.Input.List {
		t.Fatalf("class %v", class)
	}
}

func FuzzClassify(f *testing.F) {
	f.Add(`{"input":[`+developer+`,`+ask+`]}`, `{"input":[`+developer+`,`+ask+`,`+call+`,`+result+`]}`)
	f.Fuzz(func(t *testing.T, first, second string) {
		a, b := Read([]byte(first)), Read([]byte(second))
		known := &Known{Items: len(a.Input.Items), Prefix: a.Input.Prefix()}
		class, from := Classify(b.Input, known)
		if class == ClassDelta && b.Input.SelfContained() || class != ClassDelta && !b.Input.SelfContained() && class != ClassFullProved {
			t.Fatalf("class %v of a payload that stands alone: %v", class, b.Input.SelfContained())
		}
		if from < 0 || from > len(b.Input.Items) {
			t.Fatalf("from %d of %d items", from, len(b.Input.Items))
		}
		for _, i := range b.Input.Items {
			if i.Start < 0 || i.End > len(second) || i.Start > i.End {
				t.Fatalf("item offsets %d..%d in %d bytes", i.Start, i.End, len(second))
			}
		}
	})
}

func BenchmarkRead(b *testing.B) {
	items := []string{developer, ask}
	for i := range 100 {
		items = append(items, strings.ReplaceAll(call, "c1", fmt.Sprint("c", i)),
			fmt.Sprintf(`{"type":"function_call_output","call_id":"c%d","output":%q}`, i, strings.Repeat("line of output\n", 550)))
	}
	body := []byte(`{"model":"m","input":[` + strings.Join(items, ",") + `]}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		Read(body)
	}
}
