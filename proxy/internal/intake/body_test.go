package intake

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/causeway-dev/causeway/proxy/internal/deadline"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers with the length and digest of the body it read.
func serve(t *testing.T, o Options) *httptest.Server {
	t.Helper()
	in, err := NewReader(o)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := in.Read(w, r)
		if err != nil {
			failure.From(err).WriteHTTP(w)
			return
		}
		_, _ = io.WriteString(w, digest(body))
	}))
	t.Cleanup(s.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return s
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return fmt.Sprintf("%d %s", len(body), hex.EncodeToString(sum[:]))
}

func post(t *testing.T, s *httptest.Server, body io.Reader, headers ...string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(raw)
}

// chunked hides a body's length from net/http.
type chunked struct{ io.Reader }

// pattern is n bytes of text, about as compressible as prose.
func pattern(n int) []byte {
	words := strings.Fields("the bridge keeps one socket per session and sends what is new; a turn that could go on must go on")
	b := make([]byte, 0, n+16)
	for x := uint32(1); len(b) < n; x = x*1664525 + 1013904223 {
		b = append(append(b, words[int(x>>16)%len(words)]...), ' ')
	}
	return b[:n]
}

func TestB73_BodyLimitIsExact(t *testing.T) {
	const limit = 1 << 16
	s := serve(t, Options{MaxBody: limit})
	for shift := 4; shift <= 17; shift++ {
		for _, d := range []int{-1, 0, 1} {
			size := 1<<shift + d
			t.Run(fmt.Sprint(size), func(t *testing.T) {
				body := pattern(size)
				for name, form := range forms(t, body) {
					status, answer := post(t, s, form.body(), form.headers...)
					switch {
					case size <= limit && (status != http.StatusOK || answer != digest(body)):
						t.Errorf("%s: %d %s", name, status, answer)
					case size > limit && (status != http.StatusBadRequest || !strings.Contains(answer, failure.PayloadTooLarge)):
						t.Errorf("%s: %d %s, want 400 %s", name, status, answer, failure.PayloadTooLarge)
					}
				}
			})
		}
	}
}

type form struct {
	body    func() io.Reader
	headers []string
}

func forms(t *testing.T, body []byte) map[string]form {
	t.Helper()
	all := map[string]form{
		"length":  {func() io.Reader { return bytes.NewReader(body) }, nil},
		"chunked": {func() io.Reader { return chunked{bytes.NewReader(body)} }, nil},
	}
	for _, c := range []string{"gzip", "zstd", "zstd-sized", "zlib", "raw"} {
		packed := pack(t, c, body)
		all[c] = form{func() io.Reader { return bytes.NewReader(packed) }, []string{"Content-Encoding", header(c)}}
	}
	return all
}

func TestB73_FullSizeLimit(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("moves 384 MiB")
	}
	s := serve(t, Options{})
	for _, d := range []int{-1, 0, 1} {
		size := MaxBody + d
		zeros := io.LimitReader(zero{}, int64(size))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, zeros)
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = int64(size)
		res, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if ok := res.StatusCode == http.StatusOK; ok != (size <= MaxBody) {
			t.Errorf("%d bytes: %d %s", size, res.StatusCode, raw)
		}
		if res.Close {
			t.Errorf("%d bytes: the connection was given up", size)
		}
	}
}

type zero struct{}

func (zero) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A refused body must not cost the client the answer or the connection.
func TestB73_ConnectionSurvivesTooLarge(t *testing.T) {
	s := serve(t, Options{MaxBody: 1 << 20})
	var addrs []string
	for _, size := range []int{2<<20 - 5, 10} {
		status, answer := post(t, s, bytes.NewReader(pattern(size)))
		addrs = append(addrs, fmt.Sprint(status), answer)
	}
	if addrs[0] != "400" || addrs[2] != "200" {
		t.Error(addrs)
	}
}

func TestExpectContinueIsRefusedUnread(t *testing.T) {
	s := serve(t, Options{MaxBody: 1000})
	conn := dial(t, s)
	send(t, conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\nExpect: 100-continue\r\n\r\n")
	answer := receive(t, conn)
	if !strings.HasPrefix(answer, "HTTP/1.1 400") || !strings.Contains(answer, "Connection: close") {
		t.Error(answer)
	}
}

func TestSlowBodies(t *testing.T) {
	tests := []struct {
		name    string
		options Options
	}{
		{"total", Options{Total: 100 * time.Millisecond}},
		{"floor", Options{FloorAfter: 100 * time.Millisecond}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conn := dial(t, serve(t, tt.options))
			send(t, conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n{\"model\"")
			answer := receive(t, conn) // until the server closes
			if !strings.HasPrefix(answer, "HTTP/1.1 408") || !strings.Contains(answer, failure.RequestTimeout) {
				t.Error(answer)
			}
		})
	}
}

func TestAllowance(t *testing.T) {
	o := Options{Total: deadline.InboundBodyTime, FloorAfter: deadline.InboundBodyGrace}
	tests := []struct {
		count int
		want  time.Duration
	}{
		{0, 5 * time.Second},
		{deadline.InboundBodyFloor, 6 * time.Second},
		{10 * deadline.InboundBodyFloor, 15 * time.Second},
		{100 * deadline.InboundBodyFloor, 60 * time.Second},
		{MaxBody, 60 * time.Second},
	}
	for _, tt := range tests {
		if got := allowance(o, tt.count); got != tt.want {
			t.Errorf("allowance(%d) = %s, want %s", tt.count, got, tt.want)
		}
	}
}

// The deadline of the body must not end the request it belongs to.
func TestDeadlineEndsWithTheBody(t *testing.T) {
	in, err := NewReader(Options{Total: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := in.Read(w, r); err != nil {
			failure.From(err).WriteHTTP(w)
			return
		}
		later, stop := context.WithTimeout(r.Context(), 200*time.Millisecond)
		defer stop()
		<-later.Done()
		if r.Context().Err() != nil {
			t.Error("the request was cancelled by its body's deadline")
		}
	}))
	defer s.Close()
	for _, body := range []string{"{}", ""} {
		if status, answer := post(t, s, strings.NewReader(body)); status != http.StatusOK {
			t.Error(status, answer)
		}
	}
}

// A body is held once: what a request allocates is its size and little more.
func TestBodyIsHeldOnce(t *testing.T) {
	in, err := NewReader(Options{})
	if err != nil {
		t.Fatal(err)
	}
	body := pattern(2 << 20)
	for name, f := range forms(t, body) {
		var before, after runtime.MemStats
		raw, err := io.ReadAll(f.body())
		if err != nil {
			t.Fatal(err)
		}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(raw))
		if name == "chunked" {
			req.ContentLength = -1
		}
		if len(f.headers) > 0 {
			req.Header.Set(f.headers[0], f.headers[1])
		}
		runtime.GC()
		runtime.GC() // pools of tests before keep what they hold for one round
		runtime.ReadMemStats(&before)
		got, err := in.Read(httptest.NewRecorder(), req)
		runtime.GC()
		runtime.GC() // the second empties the pools: decoders are not the body's
		runtime.ReadMemStats(&after)
		if err != nil || !bytes.Equal(got, body) {
			t.Fatalf("%s: %v", name, err)
		}
		if held := (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(len(body)); held > 1.3 {
			t.Errorf("%s: holds %.2f times its size", name, held)
		}
		total := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(body))
		t.Logf("%s: allocated %.2f times its size in all", name, total)
		if name == "length" && total > 1.3 {
			t.Errorf("%s: allocated %.2f times its size", name, total)
		}
		runtime.KeepAlive(got)
	}
}

func TestAnnouncedLengthIsNotTrusted(t *testing.T) {
	if got := initialSize(MaxBody); got > MaxBody/8 {
		t.Errorf("allocates %d bytes before the first has arrived", got)
	}
}

func dial(t *testing.T, s *httptest.Server) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	return conn
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, conn net.Conn) string {
	t.Helper()
	raw, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
