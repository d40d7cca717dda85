package intake

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

func TestAFrameBecomesABody(t *testing.T) {
	for message, want := range map[string]string{
		`{"type":"response.create","model":"m","input":"x"}`:                                                          `{"model":"m","input":"x"}`,
		`{"model":"m","type":"response.create"}`:                                                                      `{"model":"m"}`,
		`{"model":"m" , "type" : "response.create" , "input":[]}`:                                                     `{"model":"m","input":[]}`,
		`{ "stream":true, "type":"response.create", "model":"m", "stream":false }`:                                    `{"model":"m"}`,
		`{"type":"response.create","model":"m","stream_id":null,"tools":[{"type":"function","stream":1}],"x":1.0e+3}`: `{"model":"m","tools":[{"type":"function","stream":1}],"x":1.0e+3}`,
	} {
		kind, body, err := CheckFrame([]byte(message))
		if kind != FrameCreate || string(body) != want || err != nil {
			t.Errorf("%s becomes %q %s, %v; want %s", message, kind, body, err, want)
		}
	}
	if kind, body, err := CheckFrame([]byte(`{"type":"response.interrupt","response_id":"r"}`)); kind != "response.interrupt" || body != nil || err != nil {
		t.Error(kind, body, err)
	}
}

// FuzzCheckFrame compares what is cut out in place with what a decoder leaves.
func FuzzCheckFrame(f *testing.F) {
	for _, seed := range []string{
		`{"type":"response.create","model":"m"}`, `{"model":"m","type":"response.create","stream":true}`, "{\n\"type\"\t:\"response.create\"\n,\"model\":\"m\"}",
		`{"model":"m","\u0074ype":"response.create"}`, `{"type":"response.create","type":"x","model":"m","stream":{"a":[1,{"b":"}"}]}}`, `{"type":1}`, `[]`, `{}`, ``,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, message string) {
		kind, body, err := CheckFrame([]byte(message))
		if err != nil {
			var known *failure.Failure
			if !errors.As(err, &known) {
				t.Fatalf("%T", err)
			}
			return
		}
		if kind != FrameCreate {
			return
		}
		var want, got map[string]json.RawMessage
		if json.Unmarshal([]byte(message), &want) != nil {
			t.Skip("not what encoding/json takes")
		}
		for _, name := range []string{"type", "stream", "stream_id"} {
			delete(want, name)
		}
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%q becomes %q: %v", message, body, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q becomes %q", message, body)
		}
	})
}

type noDeadlines struct{}

func (noDeadlines) SetReadDeadline(time.Time) error { return nil }

func TestMessagesAreBounded(t *testing.T) {
	in, err := NewReader(Options{MaxBody: 10})
	if err != nil {
		t.Fatal(err)
	}
	if body, err := in.ReadMessage(noDeadlines{}, strings.NewReader("0123456789")); string(body) != "0123456789" || err != nil {
		t.Error(string(body), err)
	}
	long := strings.NewReader(strings.Repeat("x", 20))
	var refused *failure.Failure
	if _, err := in.ReadMessage(noDeadlines{}, long); !errors.As(err, &refused) || refused.Code != failure.PayloadTooLarge || errors.Is(err, ErrConnection) || long.Len() > 0 {
		t.Error(err, long.Len())
	}
	if _, err := in.ReadMessage(noDeadlines{}, strings.NewReader(strings.Repeat("x", 1000))); !errors.Is(err, ErrConnection) {
		t.Error("the rest of an endless message is waited for:", err)
	}
}

// A message of nothing but what is cut out takes no longer than others of its size.
func BenchmarkCheckFrame(b *testing.B) {
	for name, filler := range map[string]string{"usual": `,"a":"` + strings.Repeat("x", 1<<20) + `"`, "hostile": strings.Repeat(`,"stream":1`, 1<<20/11)} {
		b.Run(name, func(b *testing.B) {
			message := []byte(`{"type":"response.create","model":"m","input":"x"` + filler + `}`)
			scratch := make([]byte, len(message))
			b.SetBytes(int64(len(message)))
			for b.Loop() {
				copy(scratch, message)
				if _, _, err := CheckFrame(scratch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
