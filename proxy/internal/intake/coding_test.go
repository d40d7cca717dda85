package intake

import (
	"bytes"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

func header(c string) string {
	switch c {
	case "zlib", "raw":
		return "deflate"
	case "zstd-sized", "zstd-big-window":
		return "zstd"
	default:
		return c
	}
}

func pack(tb testing.TB, c string, body []byte) []byte {
	tb.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	var err error
	switch c {
	case "gzip":
		w = gzip.NewWriter(&out)
	case "zlib":
		w = zlib.NewWriter(&out)
	case "raw":
		w, err = flate.NewWriter(&out, flate.DefaultCompression)
	case "zstd":
		w, err = zstd.NewWriter(&out, zstd.WithWindowSize(1<<20))
	case "zstd-big-window":
		w, err = zstd.NewWriter(&out, zstd.WithWindowSize(64<<20))
	case "zstd-sized":
		e, err := zstd.NewWriter(nil, zstd.WithSingleSegment(true))
		if err != nil {
			tb.Fatal(err)
		}
		return e.EncodeAll(body, nil)
	}
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := w.Write(body); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

func TestB65_Codings(t *testing.T) {
	s := serve(t, Options{})
	small, large := []byte(`{"model":"m"}`), pattern(trusted+1)
	// A frame that is its own window may be larger than windows are.
	larger := pattern(maxWindow + 1)
	for _, c := range []string{"gzip", "zlib", "raw", "zstd", "zstd-sized"} {
		bodies := [][]byte{small, large, {}}
		if c == "zstd-sized" {
			bodies = append(bodies, larger)
		}
		for _, body := range bodies {
			status, answer := post(t, s, bytes.NewReader(pack(t, c, body)), "Content-Encoding", header(c))
			if status != http.StatusOK || answer != digest(body) {
				t.Errorf("%s of %d bytes: %d %s", c, len(body), status, answer)
			}
		}
	}
}

func TestB65_SeveralCodings(t *testing.T) {
	s := serve(t, Options{})
	body := pattern(100_000)
	twice := pack(t, "zstd", pack(t, "gzip", body))
	concatenated := slices.Concat(pack(t, "zstd-sized", body[:500]), pack(t, "zstd-sized", body[500:]))
	tests := []struct {
		name    string
		body    []byte
		headers []string
	}{
		{"one header", twice, []string{"Content-Encoding", "gzip, zstd"}},
		{"two headers", twice, []string{"Content-Encoding", "gzip", "Content-Encoding", "zstd"}},
		{"case and identity", twice, []string{"Content-Encoding", "Identity,X-GZIP ,, ZSTD"}},
		{"identity alone", body, []string{"Content-Encoding", "identity"}},
		{"frames in a row", concatenated, []string{"Content-Encoding", "zstd"}},
		{"members in a row", slices.Concat(pack(t, "gzip", body[:7]), pack(t, "gzip", body[7:])), []string{"Content-Encoding", "gzip"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if status, answer := post(t, s, bytes.NewReader(tt.body), tt.headers...); status != http.StatusOK || answer != digest(body) {
				t.Error(status, answer)
			}
		})
	}
}

func TestB65_Refused(t *testing.T) {
	s := serve(t, Options{MaxBody: 1 << 20})
	body := pattern(10_000)
	half := func(c string) []byte { p := pack(t, c, body); return p[:len(p)/2] }
	garbage := func(c string) []byte { return append(pack(t, c, body), "garbage"...) }
	tests := []struct {
		name, coding string
		body         []byte
		status       int
		text         string
	}{
		{"unknown", "br", body, 415, failure.UnsupportedEncoding},
		{"unknown in a list", "gzip, br", body, 415, failure.UnsupportedEncoding},
		{"three", "gzip, gzip, gzip", body, 415, "More than 2"},
		{"truncated gzip", "gzip", half("gzip"), 400, "not valid gzip"},
		{"truncated zlib", "deflate", half("zlib"), 400, "not valid deflate"},
		{"truncated raw", "deflate", half("raw"), 400, "not valid deflate"},
		{"truncated zstd", "zstd", half("zstd"), 400, "not valid zstd"},
		{"truncated sized zstd", "zstd", half("zstd-sized"), 400, "not valid zstd"},
		{"garbage after gzip", "gzip", garbage("gzip"), 400, "not valid gzip"},
		{"garbage after zlib", "deflate", garbage("zlib"), 400, "not valid deflate"},
		{"garbage after raw", "deflate", garbage("raw"), 400, "not valid deflate"},
		{"garbage after zstd", "zstd", garbage("zstd"), 400, "not valid zstd"},
		{"plain as gzip", "gzip", body, 400, "not valid gzip"},
		{"plain as zstd", "zstd", []byte(`{"model":"m"}`), 400, "not valid zstd"},
		{"plain as deflate", "deflate", []byte(`{"model":"m"}`), 400, "not valid deflate"},
		{"wrong order", "zstd, gzip", pack(t, "zstd", pack(t, "gzip", body)), 400, "not valid gzip"},
		{"zstd that lies about its size", "zstd", lyingZstd(), 400, "not valid zstd"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, answer := post(t, s, bytes.NewReader(tt.body), "Content-Encoding", tt.coding)
			if status != tt.status || !strings.Contains(answer, tt.text) {
				t.Errorf("%d %s, want %d with %q", status, answer, tt.status, tt.text)
			}
		})
	}
}

// A window costs memory whatever the body's size is.
func TestB65_ZstdWindowIsBounded(t *testing.T) {
	packed := pack(t, "zstd-big-window", pattern(maxWindow+1))
	status, answer := post(t, serve(t, Options{}), bytes.NewReader(packed), "Content-Encoding", "zstd")
	if status != http.StatusBadRequest || !strings.Contains(answer, "window") {
		t.Error(status, answer)
	}
}

// Counting ends with the limit, not with the bomb.
func TestB65_EndlessBodiesStop(t *testing.T) {
	d := &decoders{limit: 1000}
	if _, err := d.count(zero{}); failure.From(err).Code != failure.PayloadTooLarge {
		t.Error(err)
	}
}

// lyingZstd is a frame of one empty block that claims half a mebibyte.
func lyingZstd() []byte {
	return []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 8, 0, 1, 0, 0}
}

// bomb unfolds to size zeros.
func bomb(t *testing.T, c string, size int64) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	var err error
	if c == "zstd" {
		w, err = zstd.NewWriter(&out, zstd.WithWindowSize(1<<20), zstd.WithEncoderConcurrency(1))
	} else {
		w, err = gzip.NewWriterLevel(&out, gzip.BestSpeed)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(w, zero{}, size); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestB65_BombsStopAtTheLimit(t *testing.T) {
	const unfolded = 64 << 20
	single := bomb(t, "zstd", unfolded)
	tests := []struct {
		name, coding string
		body         []byte
	}{
		{"zstd", "zstd", single},
		{"gzip", "gzip", bomb(t, "gzip", unfolded)},
		{"zstd in zstd", "zstd, zstd", pack(t, "zstd", single)},
		{"zstd of many frames", "zstd", bytes.Repeat(single, 10)},
		// 10 GB, by its header; nothing of it may be allocated.
		{"zstd of announced size", "zstd", append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0xe4, 0x0b, 0x54, 2, 0, 0, 0}, make([]byte, 1000)...)},
	}
	in, err := NewReader(Options{MaxBody: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, Options{MaxBody: 1 << 20})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			codings, err := parseCodings([]string{tt.coding})
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			raw := tt.body
			for i := len(codings) - 1; i >= 0 && err == nil; i-- {
				raw, err = in.decoders.decode(codings[i], raw)
			}
			runtime.ReadMemStats(&after)
			if got := failure.From(err).Code; got != failure.PayloadTooLarge {
				t.Errorf("code %s, want %s", got, failure.PayloadTooLarge)
			}
			if total := after.TotalAlloc - before.TotalAlloc; total > 8<<20 {
				t.Errorf("allocated %d bytes", total)
			}
			status, answer := post(t, s, bytes.NewReader(tt.body), "Content-Encoding", tt.coding)
			if status != http.StatusBadRequest || !strings.Contains(answer, failure.PayloadTooLarge) {
				t.Error(status, answer)
			}
		})
	}
}

// A decoder that failed on one body serves the next, and holds none.
func TestB65_PooledDecodersForget(t *testing.T) {
	in, err := NewReader(Options{MaxBody: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	body := pattern(50_000)
	for range 3 {
		for _, c := range []string{"gzip", "zlib", "raw", "zstd"} {
			good := pack(t, c, body)
			bad := slices.Clone(good)
			bad[len(bad)/2] ^= 0xff
			for _, packed := range [][]byte{good, bad[:len(bad)-3], good} {
				out, err := in.decoders.decode(header(c), packed)
				if len(packed) == len(good) && !bytes.Equal(out, body) {
					t.Errorf("%s: %v", c, err)
				}
				if len(packed) < len(good) && err == nil {
					t.Errorf("%s: damage went unseen", c)
				}
			}
		}
	}
}

func TestParseCodings(t *testing.T) {
	got, err := parseCodings([]string{" gzip", "identity, zstd"})
	if diff := cmp.Diff([]string{"gzip", "zstd"}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}
