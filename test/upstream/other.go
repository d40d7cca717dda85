package upstream

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
	"strings"
	"time"
)

func routeOf(path string) string {
	switch path {
	case "/v1/responses", "/backend-api/codex/responses":
		return RouteResponses
	case "/v1/models", "/backend-api/codex/models":
		return RouteModels
	case "/backend-api/wham/usage":
		return RouteUsage
	default:
		return RouteOther
	}
}

// other answers what is no response.
func (s *Server) other(w http.ResponseWriter, r *http.Request, req request, route string) {
	raw, body, err := readBody(r)
	req.wire, req.body = len(raw), body
	if err != nil {
		s.deny(w, r, req, route, badRequest("invalid_body", err.Error(), ""))
		return
	}
	rule, _ := s.director.pick(facts{account: req.account, route: route, path: req.path, transport: TransportHTTP, body: body})
	if rule != nil && rule.Fault != nil && s.spoil(w, r, req, route, rule.Fault) {
		return
	}
	setHeaders(w.Header(), s.quotas.headers(&req, nil))
	switch {
	case route == RouteModels:
		s.models(w, r, &req)
	case route == RouteUsage:
		writeJSON(w, http.StatusOK, s.quotas.usage(req.account))
	case strings.HasSuffix(req.path, "/embeddings"):
		writeJSON(w, http.StatusOK, embeddings(body))
	case strings.HasSuffix(req.path, "/chat/completions"):
		writeJSON(w, http.StatusOK, completion(body, req.received))
	default:
		writeJSON(w, http.StatusOK, object{
			"object", "echo", "method", r.Method, "path", r.URL.Path, "query", r.URL.RawQuery, "account", req.account,
			"content_type", r.Header.Get("Content-Type"), "body_bytes", len(body), "body_sha256", Digest(body),
		})
	}
	s.note(r, req, route, http.StatusOK, "")
}

// deny answers with an error and notes it.
func (s *Server) deny(w http.ResponseWriter, r *http.Request, req request, route string, e *apiError) {
	s.note(r, req, route, e.status, e.code)
	_ = newHTTPSink(w, r, false).refuse(r.Context(), e) // the client may have gone
}

func (s *Server) note(r *http.Request, req request, route string, status int, code string) {
	rec := &Request{
		Time: req.received, Route: route, Method: r.Method, Path: r.URL.Path, Account: req.account, Connection: req.conn, Client: req.client,
		Status: status, Code: code, ContentType: r.Header.Get("Content-Type"), BodyBytes: len(req.body), Headers: safeHeaders(r.Header),
	}
	if route != RouteOAuth {
		rec.BodyDigest = Digest(req.body)
		if s.opts.KeepBodies {
			rec.Body = req.body
		}
	}
	s.ledger.addRequest(rec)
}

// spoil plays a fault on a request that makes no response; false means that
// the healthy answer follows.
func (s *Server) spoil(w http.ResponseWriter, r *http.Request, req request, route string, f *Fault) bool {
	k := newHTTPSink(w, r, false)
	ctx := r.Context()
	switch f.Action {
	case ActStall:
		if f.Duration > 0 {
			return wait(ctx, time.Duration(f.Duration)) != nil
		}
		s.note(r, req, route, 0, ActMute)
		<-ctx.Done()
	case ActMute:
		s.note(r, req, route, 0, ActMute)
		<-ctx.Done()
	case ActReset:
		s.note(r, req, route, 0, ActReset)
		k.cut(cutReset, 0, "")
	case ActFin, ActWSClose:
		s.note(r, req, route, 0, ActFin)
		k.cut(cutFin, 0, "")
	case ActGarbage:
		s.note(r, req, route, 0, ActGarbage)
		_ = k.raw(ctx, rawWire, []byte(orDefault(f.Body, string(garbage)))) // the client may have gone, here and below
	case ActHTML:
		s.note(r, req, route, max(f.Status, http.StatusOK), ActHTML)
		_ = k.answer(ctx, f.Status, "text/html; charset=utf-8", []byte(orDefault(f.Body, defaultPage)))
	default:
		e := f.apiError()
		s.note(r, req, route, e.status, e.code)
		_ = k.refuse(ctx, e)
	}
	return true
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(encode(v)) // the client may have gone
}

// usualModels are offered when a script names none.
var usualModels = []string{"gpt-5.5", "gpt-5.5-mini", "gpt-6-sol"}

// models speaks both forms: the platform's list, and the catalogue that Codex
// asks for with client_version or on its own path.
func (s *Server) models(w http.ResponseWriter, r *http.Request, req *request) {
	names := s.director.get().Models
	if len(names) == 0 {
		names = usualModels
	}
	list, catalogue := []object{}, []object{}
	for _, n := range names {
		list = append(list, object{"id", n, "object", "model", "created", 1780000000, "owned_by", "openai"})
		catalogue = append(catalogue, catalogueEntry(n))
	}
	if req.mode == ModeChatGPT || r.URL.Query().Has("client_version") {
		w.Header().Set("ETag", `"`+Digest(encode(names))[:16]+`"`)
		writeJSON(w, http.StatusOK, object{"models", catalogue})
		return
	}
	writeJSON(w, http.StatusOK, object{"object", "list", "data", list})
}

func catalogueEntry(name string) object {
	level := func(s string) object { return object{"effort", s, "description", s} }
	return object{
		"slug", name, "display_name", name, "description", "Scripted model.", "base_instructions", "You are a coding agent.",
		"default_reasoning_level", "medium", "supported_reasoning_levels", []object{level("low"), level("medium"), level("high")},
		"shell_type", "shell_command", "visibility", "list", "supported_in_api", true, "priority", 0, "minimal_client_version", "0.60.0",
		"supports_reasoning_summaries", true, "support_verbosity", true, "default_verbosity", "low", "apply_patch_tool_type", "freeform",
		"supports_parallel_tool_calls", true, "context_window", 272000, "input_modalities", []string{"text", "image"},
		"available_in_plans", []string{"plus", "pro", "team"}, "prefer_websockets", true, "upgrade", nil,
		"truncation_policy", object{"mode", "tokens", "limit", 10000}, "experimental_supported_tools", []any{},
	}
}

func embeddings(body []byte) object {
	v, _ := decode(body) // a body that is no JSON gets a vector, too
	fields, _ := v.(map[string]any)
	inputs, ok := fields["input"].([]any)
	if !ok {
		inputs = []any{fields["input"]}
	}
	vector := []float32{0.25, -0.5, 0.75}
	var embedding any = vector
	if text(fields["encoding_format"]) == "base64" { // what SDKs ask for unless told otherwise
		var packed []byte
		for _, v := range vector {
			packed = binary.LittleEndian.AppendUint32(packed, math.Float32bits(v))
		}
		embedding = base64.StdEncoding.EncodeToString(packed)
	}
	data := []object{}
	for i := range inputs {
		data = append(data, object{"object", "embedding", "index", i, "embedding", embedding})
	}
	return object{
		"object", "list", "data", data, "model", orDefault(text(fields["model"]), "unknown"),
		"usage", object{"prompt_tokens", len(inputs), "total_tokens", len(inputs)},
	}
}

func completion(body []byte, at time.Time) object {
	v, _ := decode(body) // as above
	fields, _ := v.(map[string]any)
	return object{
		"id", "chatcmpl-" + Digest(body)[:12], "object", "chat.completion", "created", at.Unix(), "model", text(fields["model"]),
		"choices", []object{{
			"index", 0, "message", object{"role", "assistant", "content", "Hello from the scripted upstream."}, "finish_reason", "stop",
		}},
		"usage", object{"prompt_tokens", 12, "completion_tokens", 7, "total_tokens", 19},
	}
}
