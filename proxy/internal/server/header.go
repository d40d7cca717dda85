package server

import (
	"net/http"
	"strings"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// What of an upstream's answer does not reach a client: cookies of a connection
// that is not the client's, and promises about an origin that is not ours.
var strippedResponse = []string{"Set-Cookie", "Alt-Svc", "Strict-Transport-Security", "Report-To", "Nel", "Via"}

// toUpstream strips a header of what is the client's alone (what belongs to one
// hop, httputil.ReverseProxy removes) and sends it on behalf of an account.
func toUpstream(h http.Header, id string, c bundle.Credential) {
	for name := range h {
		if upstream.Private(name) {
			delete(h, name)
		}
	}
	h.Set(requestIDHeader, id)
	upstream.Authorize(h, c)
}

// toClient strips an upstream's header. The request id is the proxy's; the
// upstream's own goes by another name.
func toClient(h http.Header, id string) {
	for _, name := range strippedResponse {
		h.Del(name)
	}
	for name := range h {
		if strings.HasPrefix(name, "X-Causeway-") {
			delete(h, name)
		}
	}
	if theirs := h.Get(requestIDHeader); theirs != "" && theirs != id {
		h.Set(upstream.RequestIDHeader, theirs)
	}
	h.Set(requestIDHeader, id)
}
