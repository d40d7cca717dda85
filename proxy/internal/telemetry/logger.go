// Package telemetry makes the proxy's logger and its metrics. Every label comes
// from a closed set of this package, so that no caller can make a series of its
// own.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
)

// redacted stands where a secret would have been.
const redacted = "[redacted]"

// NewLogger writes JSON lines to w. level is debug, info, warn or error.
//
// Nothing in the proxy logs secrets; as a second line of defence, text under
// keys that name a secret is replaced.
func NewLogger(w io.Writer, level string) (*slog.Logger, error) {
	var minimum slog.Level
	switch strings.ToLower(level) {
	case "debug":
		minimum = slog.LevelDebug
	case "info", "":
		minimum = slog.LevelInfo
	case "warn":
		minimum = slog.LevelWarn
	case "error":
		minimum = slog.LevelError
	default:
		return nil, fmt.Errorf("log level %q is none of debug, info, warn, error", level)
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: minimum, ReplaceAttr: guard})), nil
}

// guard replaces the values of attributes whose key names a secret. Numbers
// stay: a count of tokens is not a token.
func guard(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if namesSecret(a.Key) && a.Value.String() != "" {
			return slog.String(a.Key, redacted)
		}
	case slog.KindAny:
		if h, ok := a.Value.Any().(http.Header); ok {
			return slog.Any(a.Key, guardHeader(h))
		}
		if namesSecret(a.Key) {
			return slog.String(a.Key, redacted)
		}
	default:
	}
	return a
}

func guardHeader(h http.Header) http.Header {
	safe := make(http.Header, len(h))
	for name, values := range h {
		// A WebSocket client may carry its key as a subprotocol.
		if namesSecret(name) || strings.EqualFold(name, "Sec-WebSocket-Protocol") {
			values = []string{redacted}
		}
		safe[name] = values
	}
	return safe
}

var separators = strings.NewReplacer("-", "", "_", "", ".", "", " ", "")

func namesSecret(key string) bool {
	k := separators.Replace(strings.ToLower(key))
	switch k {
	case "key", "secret", "bearer", "cookie", "setcookie":
		return true
	}
	for _, end := range [...]string{"authorization", "token", "apikey", "clientkey", "clientsecret", "password"} {
		if strings.HasSuffix(k, end) {
			return true
		}
	}
	return false
}
