package server

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
)

const (
	opsReadTimeout  = 10 * time.Second
	opsWriteTimeout = 30 * time.Second
	opsIdleTimeout  = 2 * time.Minute
)

// Ops is what the ops port shows.
type Ops struct {
	Version string
	// Metrics serves /metrics.
	Metrics http.Handler
	// Started says whether the data port is being served.
	Started func() bool
	// Health answers /livez and /readyz.
	Health *Health
	// Sessions are shown below /admin/v1/sessions.
	Sessions Sessions
	Logger   *slog.Logger
}

// HTTPServer is the ops port's server. It shares nothing with the data port, so
// that it answers however busy that is.
func (o Ops) HTTPServer() *http.Server {
	return &http.Server{
		Handler:           o.handler(),
		ReadHeaderTimeout: opsReadTimeout,
		ReadTimeout:       opsReadTimeout,
		WriteTimeout:      opsWriteTimeout,
		IdleTimeout:       opsIdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
}

func (o Ops) handler() http.Handler {
	mux := http.NewServeMux()
	// A process whose dependencies fail is not healed by being restarted.
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		if !o.Health.Alive() {
			plain(w, http.StatusServiceUnavailable, "stuck: turns cannot get on")
			return
		}
		plain(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /startupz", func(w http.ResponseWriter, _ *http.Request) {
		if !o.Started() {
			plain(w, http.StatusServiceUnavailable, "starting")
			return
		}
		plain(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", o.ready)
	mux.Handle("GET /metrics", o.Metrics)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"version": o.Version, "go": runtime.Version(), "contractVersion": bundle.ContractVersion})
	})
	mux.HandleFunc("GET /admin/v1/sessions", o.sessions)
	mux.HandleFunc("GET /admin/v1/sessions/{key}", o.session)
	return mux
}

// ready answers in one word, or with ?verbose with the list of checks.
func (o Ops) ready(w http.ResponseWriter, r *http.Request) {
	ready, checks := o.Health.Report()
	status, word := http.StatusOK, "ok"
	if !ready {
		status = http.StatusServiceUnavailable
		for _, c := range checks {
			if c.State == Down && c.Severity == blocking {
				word = "not ready: " + c.Name
				break
			}
		}
	}
	if !r.URL.Query().Has("verbose") {
		plain(w, status, word)
		return
	}
	writeJSON(w, status, map[string]any{"ready": ready, "checks": checks})
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n"))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		status, raw = http.StatusInternalServerError, []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n'))
}
