package server

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

func TestLaneOfAPath(t *testing.T) {
	for path, want := range map[string]bulkhead.Lane{
		"/v1/images/generations": bulkhead.Media, "/v1/images/edits/": bulkhead.Media, "/v1//images/variations": bulkhead.Media,
		"/v1/responses/compact": bulkhead.Compact, "/v1/models/gpt-5": bulkhead.Background,
		"/v1/files": bulkhead.HTTP, "/v1/imagesque": bulkhead.HTTP, "/v1/responses/resp_1": bulkhead.HTTP, "/v1/responses/compact/x": bulkhead.HTTP,
	} {
		if got := laneOf(path); got != want {
			t.Errorf("%s goes into lane %s, want %s", path, got, want)
		}
	}
}

// edgeWithLanes has one place in each lane and no queue.
func edgeWithLanes(t *testing.T, upstream http.HandlerFunc) *edge {
	t.Helper()
	return start(t, setup{upstream: upstream, change: func(b *bundle.Bundle, _ *bundle.Credentials) {
		for _, l := range bulkhead.Lanes() {
			b.Circuit.Bulkheads = append(b.Circuit.Bulkheads, bundle.Bulkhead{Lane: l.String(), MaxConcurrent: 1, QueueTimeoutSeconds: 30})
		}
	}})
}

func TestScenarioT31_LanesDoNotTakeEachOthersPlaces(t *testing.T) {
	arrived, hold := make(chan string, 16), make(chan struct{})
	e := edgeWithLanes(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.URL.Path
		select {
		case <-hold:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, `{"object":"list","data":[]}`)
	})
	var wg sync.WaitGroup
	var seen []string
	first := []string{"/v1/images/generations", "/v1/responses/compact", "/v1/models", "/v1/files"}
	for _, path := range first {
		method := "POST"
		if path == "/v1/models" {
			method = "GET"
		}
		req := e.request(t, method, path, nil)
		wg.Go(func() {
			if res, err := e.client.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		})
		seen = append(seen, <-arrived)
	}
	if want := []string{"/base/v1/images/generations", "/base/v1/responses/compact", "/base/v1/models", "/base/v1/files"}; !slices.Equal(seen, want) {
		t.Errorf("reached the upstream: %q", seen)
	}
	for path, scope := range map[string]string{"/v1/images/edits": "media", "/v1/responses/compact": "compact", "/v1/embeddings": "http"} {
		got := e.call(t, "POST", path, "{}")
		if got.StatusCode != http.StatusServiceUnavailable || got.code() != failure.BulkheadFull || got.Header.Get("Retry-After") == "" {
			t.Errorf("%s, whose lane %s is full: %d %s", path, scope, got.StatusCode, got.text)
		}
	}
	if got := e.call(t, "GET", "/backend-api/codex/models", ""); got.code() != failure.BulkheadFull {
		t.Errorf("lists of models beside each other: %d %s", got.StatusCode, got.text)
	}
	close(hold)
	wg.Wait()
	e.settle(t)
}

func TestScenarioT32_PermitIsHeldUntilTheLastByte(t *testing.T) {
	hold := make(chan struct{})
	e := edgeWithLanes(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "ab")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	})
	stream := func() io.Closer {
		res, err := e.client.Do(e.request(t, "GET", "/v1/files/f/content", nil))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(res.Body, make([]byte, 2)); err != nil {
			t.Fatal(err)
		}
		return res.Body
	}
	open := stream()
	if got := e.call(t, "POST", "/v1/embeddings", "{}"); got.code() != failure.BulkheadFull {
		t.Errorf("while a stream is open: %d %s", got.StatusCode, got.text)
	}
	aborted := time.Now()
	open.Close()
	e.settle(t)
	if took := time.Since(aborted); took > time.Second {
		t.Errorf("freed %s after the client had gone", took)
	}
	close(hold)
	stream().Close()
	e.settle(t)
}
