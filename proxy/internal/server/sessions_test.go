package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/session"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

// stage has as many sessions as it is long.
type stage struct {
	views  []session.View
	detail session.Detail
	// eager returns more than it was asked for.
	eager bool
}

func (s stage) Views(limit int) ([]session.View, int) {
	if s.eager {
		limit = len(s.views)
	}
	return s.views[:min(limit, len(s.views))], len(s.views)
}

func (s stage) Detail(key string) (session.Detail, bool) { return s.detail, key == s.detail.Key }

func views(n int) []session.View {
	list := make([]session.View, n)
	for i := range list {
		list[i] = session.View{Key: fmt.Sprintf("%012x", i), Kind: "turn_state", State: "idle", Model: "gpt-5.5", Anchor: "good"}
	}
	return list
}

// ask returns the status and the body of one look at the ops port.
func ask(t *testing.T, s stage, method, path string) (int, string) {
	t.Helper()
	o := Ops{Metrics: telemetry.NewMetrics("v").Handler(), Logger: quietLogger, Started: func() bool { return true },
		Health: NewHealth(quietLogger, func() {}), Sessions: s}
	w := httptest.NewRecorder()
	o.HTTPServer().Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	raw, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if w.Code != http.StatusMethodNotAllowed && w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%s %s: content type %q", method, path, w.Header().Get("Content-Type"))
	}
	return w.Code, string(raw)
}

func TestSessionsAreListed(t *testing.T) {
	type list struct {
		Total int            `json:"total"`
		Items []session.View `json:"items"`
		Error struct {
			Code, Message string
		} `json:"error"`
	}
	for name, tc := range map[string]struct {
		stage   stage
		query   string
		status  int
		items   int
		message string
	}{
		"none":               {stage{}, "", 200, 0, ""},
		"fewer than asked":   {stage{views: views(3)}, "", 200, 3, ""},
		"default":            {stage{views: views(5000)}, "", 200, defaultSessions, ""},
		"limit":              {stage{views: views(5000)}, "?limit=7", 200, 7, ""},
		"the most":           {stage{views: views(5000)}, "?limit=1000", 200, maxSessions, ""},
		"more than asked":    {stage{views: views(5000), eager: true}, "?limit=7", 200, 7, ""},
		"more than the most": {stage{views: views(5000)}, "?limit=1001", 400, 0, "1 to 1000"},
		"zero":               {stage{views: views(5000)}, "?limit=0", 400, 0, "1 to 1000"},
		"negative":           {stage{views: views(5000)}, "?limit=-1", 400, 0, "1 to 1000"},
		"no number":          {stage{views: views(5000)}, "?limit=all", 400, 0, "1 to 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			status, raw := ask(t, tc.stage, http.MethodGet, "/admin/v1/sessions"+tc.query)
			var got list
			if err := json.Unmarshal([]byte(raw), &got); err != nil {
				t.Fatalf("%v: %s", err, raw)
			}
			if status != tc.status || len(got.Items) != tc.items || !strings.Contains(got.Error.Message, tc.message) {
				t.Errorf("%d with %d sessions, %q, want %d with %d, %q", status, len(got.Items), got.Error.Message, tc.status, tc.items, tc.message)
			}
			if status == http.StatusOK && (got.Total != len(tc.stage.views) || !strings.Contains(raw, `"items":[`)) {
				t.Errorf("total %d, want %d and a list: %.100s", got.Total, len(tc.stage.views), raw)
			}
		})
	}
}

func TestOneSessionIsShownWithItsFacts(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := stage{detail: session.Detail{
		View: session.View{Key: "0123456789ab", State: "active", Model: "gpt-5.5", Circuit: "open", CircuitUntil: &at},
		Attempts: []session.AttemptView{{Turn: "req_1", Attempt: 1, Class: "full", Anchor: "injected",
			Facts: []string{"dispatched", "first_event_timeout"}, Verdict: "silent", Strike: "IdleTimeout", Recovery: "whole"}},
	}}
	status, raw := ask(t, s, http.MethodGet, "/admin/v1/sessions/0123456789ab")
	for _, part := range []string{`"key":"0123456789ab"`, `"circuit":"open"`, `"circuitUntil":"2026-03-01T12:00:00Z"`,
		`"facts":["dispatched","first_event_timeout"]`, `"verdict":"silent"`, `"strike":"IdleTimeout"`} {
		if status != http.StatusOK || !strings.Contains(raw, part) {
			t.Errorf("%d without %s: %s", status, part, raw)
		}
	}
	s.detail.Attempts = nil
	if _, raw = ask(t, s, http.MethodGet, "/admin/v1/sessions/0123456789ab"); !strings.Contains(raw, `"attempts":[]`) {
		t.Error("no attempts are no list:", raw)
	}
	for path, part := range map[string]string{
		"/admin/v1/sessions/ffffffffffff": "no session ffffffffffff",
		"/admin/v1/sessions/0123456789AB": "12 hex digits",
		"/admin/v1/sessions/0123":         "12 hex digits",
		"/admin/v1/sessions/%22%0acanary": "12 hex digits",
	} {
		status, raw = ask(t, s, http.MethodGet, path)
		var got struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal([]byte(raw), &got); err != nil || status != http.StatusNotFound ||
			got.Error.Code != "session_not_found" || !strings.Contains(got.Error.Message, part) ||
			!strings.Contains(got.Error.Message, "GET /admin/v1/sessions") || strings.Contains(raw, "canary") {
			t.Errorf("%s: %d %s, want 404 with %q and the way to the list", path, status, raw, part)
		}
	}
}

func TestSessionsAreOnlyLookedAt(t *testing.T) {
	for _, path := range []string{"/admin/v1/sessions", "/admin/v1/sessions/0123456789ab"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
			if status, _ := ask(t, stage{}, method, path); status != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, status)
			}
		}
	}
}

// A client chooses the name of its model freely.
func TestSessionsShowNoTextOfClients(t *testing.T) {
	for _, model := range []string{"<script>", "my prompt is canary", "a\ncanary", strings.Repeat("c", 101), ""} {
		v := session.View{Key: "0123456789ab", Model: model}
		s := stage{views: []session.View{v}, detail: session.Detail{View: v}}
		for _, path := range []string{"/admin/v1/sessions", "/admin/v1/sessions/0123456789ab"} {
			if _, raw := ask(t, s, http.MethodGet, path); strings.Contains(raw, `"model"`) {
				t.Errorf("model %q is shown: %s", model, raw)
			}
		}
	}
	v := session.View{Key: "0123456789ab", Model: "openai/gpt-5.5-codex:2026"}
	if _, raw := ask(t, stage{views: []session.View{v}}, http.MethodGet, "/admin/v1/sessions"); !strings.Contains(raw, v.Model) {
		t.Error("a model is not shown:", raw)
	}
}
