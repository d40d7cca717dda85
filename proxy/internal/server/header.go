package server

import (
	"net/http"
	"strings"

	"github.com/causeway-dev/causeway/api/bundle"
)

// What of a passed-through request's header does not reach the upstream, beyond
// what belongs to one hop (httputil.ReverseProxy removes that): the client's
// credentials, where it is, what only replicas may say, and the wish to be
// told to go on. All else, the client's identity among it, is passed as sent.
var strippedRequest = []string{
	"Authorization", "Chatgpt-Account-Id", "Cookie", "X-Api-Key", "Openai-Organization", "Openai-Project",
	"Forwarded", "X-Real-Ip", "True-Client-Ip", "Via", "Expect",
	// These belong to turns on the bridge, which pins them to an account.
	"X-Codex-Turn-State",
}

var strippedRequestPrefixes = []string{"X-Forwarded-", "Cf-", "X-Causeway-", "Sec-Websocket-"}

// What of an upstream's answer does not reach a client: cookies of a connection
// that is not the client's, and promises about an origin that is not ours.
var strippedResponse = []string{"Set-Cookie", "Alt-Svc", "Strict-Transport-Security", "Report-To", "Nel", "Via"}

const upstreamRequestIDHeader = "X-Causeway-Upstream-Request-Id"

// toUpstream strips a header and sends it on behalf of an account.
func toUpstream(h http.Header, id string, c bundle.Credential) {
	for _, name := range strippedRequest {
		h.Del(name)
	}
	for name := range h {
		for _, prefix := range strippedRequestPrefixes {
			if strings.HasPrefix(name, prefix) {
				delete(h, name)
			}
		}
	}
	h.Set(requestIDHeader, id)
	h.Set("Authorization", "Bearer "+c.Bearer())
	if c.ChatGPTAccountID != "" {
		h.Set("Chatgpt-Account-Id", c.ChatGPTAccountID)
	}
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
	if upstream := h.Get(requestIDHeader); upstream != "" && upstream != id {
		h.Set(upstreamRequestIDHeader, upstream)
	}
	h.Set(requestIDHeader, id)
}
