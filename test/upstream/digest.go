package upstream

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Digest is the SHA-256 of b in hex, the form used all over the ledger.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Canonical rewrites one JSON value with sorted keys and without white space;
// numbers keep their spelling. Equal values have equal canonical forms.
func Canonical(raw []byte) ([]byte, error) {
	v, err := decode(raw)
	if err != nil {
		return nil, err
	}
	return encode(v), nil
}

func decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("decoding JSON: %w", err)
	}
	if d.More() {
		return nil, fmt.Errorf("decoding JSON: text after the value")
	}
	return v, nil
}

// encode is json.Marshal without the escaping meant for HTML: the real service
// sends < and & as they are.
func encode(v any) []byte {
	if o, ok := v.(object); ok {
		return appendJSON(nil, o)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return []byte("null") // only a value that JSON cannot hold, and none is built here
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// essence reduces an item to what it means: an item that a client replays from
// a response equals the item of the response, though ids, states, nulls and
// empty lists come and go on the way.
func essence(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			if k == "id" || k == "status" || k == "internal_chat_message_metadata_passthrough" {
				continue
			}
			if e = essence(e); !isEmpty(e) {
				out[k] = e
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = essence(v[i])
		}
		return out
	default:
		return v
	}
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	default:
		return false
	}
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails, see crypto/rand
	return hex.EncodeToString(b)
}
