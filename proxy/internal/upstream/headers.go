package upstream

import (
	"net/http"
	"strings"

	"github.com/causeway-dev/causeway/api/bundle"
)

// betaWebSocket must be in openai-beta for the Responses WebSocket.
const betaWebSocket = "responses_websockets=2026-02-06"

// sessionHeaders are a client's headers that stay the same for a whole session;
// they alone go on an upgrade, whose headers live as long as the socket. The
// proxy passes the client's true identity and makes up none.
var sessionHeaders = []string{
	"Originator", "User-Agent", "Version",
	"Session-Id", "Session_id", "Thread-Id", "X-Codex-Session-Id", "X-Codex-Conversation-Id",
	"X-Client-Request-Id", "X-Codex-Beta-Features", "X-Codex-Parent-Thread-Id", "X-Openai-Subagent",
}

// anonymousHeaders are those of them that name no conversation and no person.
var anonymousHeaders = []string{"Originator", "User-Agent", "Version"}

// private never reach an upstream: the client's own credentials, where the
// client is, what only replicas may say, and the token that the bridge maps.
var private = map[string]bool{
	"Authorization": true, "Chatgpt-Account-Id": true, "Cookie": true, "X-Api-Key": true,
	"Openai-Organization": true, "Openai-Project": true,
	"Forwarded": true, "X-Real-Ip": true, "True-Client-Ip": true, "Via": true, "Expect": true,
	"X-Codex-Turn-State": true, "X-Request-Id": true,
}

var privatePrefixes = []string{"X-Forwarded-", "Cf-", "X-Causeway-", "Sec-Websocket-", "X-Codex-Bridge-"}

// framing belongs to one hop, or to the form of a body that is sent anew.
var framing = map[string]bool{
	"Host": true, "Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Proxy-Connection": true,
	"Content-Length": true, "Content-Encoding": true, "Accept-Encoding": true,
}

// UpgradeHeader is what of a client's headers goes on a WebSocket upgrade. A
// session that several users may share gets nothing that names one of them.
func UpgradeHeader(client http.Header, shared bool) http.Header {
	list := sessionHeaders
	if shared {
		list = anonymousHeaders
	}
	h := make(http.Header, len(list)+2)
	for _, name := range list {
		if v := client[http.CanonicalHeaderKey(name)]; len(v) > 0 {
			h[http.CanonicalHeaderKey(name)] = v
		}
	}
	h.Set("Openai-Beta", withBeta(client.Values("Openai-Beta")))
	return h
}

// withBeta keeps the client's other beta tokens and adds ours.
func withBeta(values []string) string {
	tokens := []string{}
	for _, v := range values {
		for _, token := range strings.Split(v, ",") {
			token = strings.TrimSpace(token)
			if token != "" && token != betaWebSocket && token != "responses=experimental" {
				tokens = append(tokens, token)
			}
		}
	}
	return strings.Join(append(tokens, betaWebSocket), ", ")
}

// RequestHeader is what of a client's headers goes with an HTTP request whose
// body is made anew.
func RequestHeader(client http.Header) http.Header {
	h := make(http.Header, len(client))
	for name, values := range client {
		if !framing[name] && !Private(name) {
			h[name] = values
		}
	}
	return h
}

// Private says whether a client's header, in canonical form, never reaches an
// upstream.
func Private(name string) bool {
	if private[name] {
		return true
	}
	for _, prefix := range privatePrefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// Authorize makes a request one of the account's.
func Authorize(h http.Header, c bundle.Credential) {
	h.Set("Authorization", "Bearer "+c.Bearer())
	if c.ChatGPTAccountID != "" {
		h.Set("Chatgpt-Account-Id", c.ChatGPTAccountID)
	}
}

// relayed are the upstream's response headers that a client gets. openai-model
// is not among them: on a socket it belongs to another turn, and a wrong one
// makes Codex warn of a rerouted model. The request id is the proxy's own.
var relayed = []string{"X-Models-Etag", "X-Reasoning-Included", "Openai-Processing-Ms", "Openai-Version"}

var relayedPrefixes = []string{"X-Codex-Primary-", "X-Codex-Secondary-", "X-Codex-Monthly-", "X-Codex-Credits-", "X-Ratelimit-"}

// RequestIDHeader tells a client the upstream's own request id.
const RequestIDHeader = "X-Causeway-Upstream-Request-Id"

// ResponseHeader copies into h what of an upstream's headers a client gets.
// fresh says that they came with this turn and not with the socket's first one;
// only then limits and ids are true.
func ResponseHeader(h, up http.Header, fresh bool) {
	for _, name := range relayed {
		if v := up[name]; len(v) > 0 {
			h[name] = v
		}
	}
	if !fresh {
		return
	}
	for name, v := range up {
		for _, prefix := range relayedPrefixes {
			if strings.HasPrefix(name, prefix) {
				h[name] = v
			}
		}
	}
	if id := up.Get("X-Request-Id"); id != "" {
		h.Set(RequestIDHeader, id)
	}
}
