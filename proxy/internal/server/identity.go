package server

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"
)

const (
	requestIDHeader = "X-Request-Id"
	// maxRequestID bounds an id that a client brings, in bytes.
	maxRequestID = 128
	// peerPrefix is of headers that only replicas may send to each other.
	peerPrefix = "X-Causeway-Peer-"
)

// requestID is the client's own id if it is a sane one, else a new one.
func requestID(h http.Header) string {
	if id := h.Get(requestIDHeader); id != "" && len(id) <= maxRequestID && isVisible(id) {
		return id
	}
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	return "req_" + hex.EncodeToString(random[:])
}

func isVisible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// authenticate names the client. The key goes nowhere else.
func (s *Server) authenticate(c *call) bool {
	name, ok := c.rt.Client(bearer(c.r.Header))
	c.client = name
	return ok
}

// bearer is the key of an Authorization header; empty = none. Two headers are
// none: which of them counts would be a guess.
func bearer(h http.Header) string {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return ""
	}
	scheme, key, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(key)
}

func stripPeerHeaders(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, peerPrefix) {
			delete(h, name)
		}
	}
}

// isWebSocket tells a WebSocket upgrade from others, such as h2c, which a server
// may ignore.
func isWebSocket(h http.Header) bool {
	for _, v := range h.Values("Upgrade") {
		for _, protocol := range strings.Split(v, ",") {
			if strings.EqualFold(strings.TrimSpace(protocol), "websocket") {
				return true
			}
		}
	}
	return false
}
