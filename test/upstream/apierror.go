package upstream

import (
	"fmt"
	"net/http"
)

// apiError is an answer that says no, in the service's own form.
type apiError struct {
	status  int
	code    string
	typ     string
	message string
	param   string
	headers map[string]string
	extra   []any  // further pairs of the error object
	rawBody string // replaces the JSON over HTTP
	// silent: the ChatGPT backend's answer to an anchor it does not know.
	silent bool
}

func badRequest(code, message, param string) *apiError {
	return &apiError{status: http.StatusBadRequest, code: code, typ: "invalid_request_error", message: message, param: param}
}

func anchorNotFound(id string) *apiError {
	return badRequest("previous_response_not_found", fmt.Sprintf("Previous response with id '%s' not found.", id), "previous_response_id")
}

func connectionLimit() *apiError {
	return badRequest("websocket_connection_limit_reached",
		"Responses websocket connection limit reached (60 minutes). Create a new websocket connection to continue.", "")
}

func wrongKey() *apiError {
	return &apiError{
		status: http.StatusUnauthorized, code: "invalid_api_key", typ: "invalid_request_error", message: "Incorrect API key provided.",
	}
}

// body is the answer over HTTP.
func (e *apiError) body() []byte {
	if e.rawBody != "" {
		return []byte(e.rawBody)
	}
	inner := object{"message", e.message, "type", orNil(e.typ), "param", orNil(e.param), "code", orNil(e.code)}
	return encode(object{"error", append(inner, e.extra...)})
}

// inner is the error object of a frame; what is unknown is left out.
func (e *apiError) inner() object {
	var o object
	for _, f := range [][2]string{{"type", e.typ}, {"code", e.code}, {"message", e.message}, {"param", e.param}} {
		if f[1] != "" {
			o = append(o, f[0], f[1])
		}
	}
	return append(o, e.extra...)
}

// frame is the error as a WebSocket frame or SSE event. Codex reads no frame
// without a top-level status, hence the shapes that lack it.
func (e *apiError) frame(shape, lane string) []byte {
	var o object
	switch shape {
	case ShapeFlat:
		o = object{"type", "error", "code", orNil(e.code), "message", e.message, "param", orNil(e.param)}
	case ShapeTypeOnly:
		o = object{"type", "error", "status", e.status, "error", object{"type", e.typ}}
	case ShapeNoStatus:
		o = object{"type", "error", "error", e.inner()}
	case ShapeStatusCode:
		o = object{"type", "error", "status_code", e.status, "error", e.inner()}
	default:
		o = object{"type", "error", "status", e.status, "error", e.inner()}
	}
	if lane != "" {
		o = append(o, "stream_id", lane)
	}
	if len(e.headers) > 0 {
		o = append(o, "headers", e.headers)
	}
	return encode(o)
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}
