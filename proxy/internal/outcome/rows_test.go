package outcome_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/causeway-dev/causeway/proxy/internal/outcome"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// answered is an HTTP answer to a request, read as the proxy reads it.
func answered(t *testing.T, status int, header map[string]string, body string) *upstream.Fault {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	dialer := upstream.NewDialer(upstream.Options{})
	defer dialer.Close()
	conn := dialer.HTTP(upstream.Target{Endpoint: server.URL})
	defer conn.Close()
	if err := conn.Send(upstream.Request{Segments: [][]byte{[]byte(`{"model":"m"}`)}}); err != nil {
		t.Fatal(err)
	}
	event, err := conn.Receive()
	if err != nil {
		t.Fatal(err)
	}
	f := upstream.ReadFault(event)
	return &f
}

const (
	jsonType = "application/json"
	htmlType = "text/html; charset=UTF-8"
)

func frame(data string) *upstream.Fault {
	f := upstream.ReadFault(upstream.Own("error", []byte(data)))
	return &f
}

func failed(object string) *upstream.Fault {
	f := upstream.ReadFault(upstream.Own("response.failed", []byte(`{"type":"response.failed","sequence_number":4,"response":`+
		`{"id":"resp_7","object":"response","created_at":1764492000,"status":"failed","error":`+object+`,"output":[],"usage":null}}`)))
	return &f
}

// sent is an attempt whose request was written and that ended with a fault.
func sent(f *upstream.Fault) outcome.Facts {
	return outcome.Facts{Fault: f, Dispatch: outcome.DispatchTerminal}
}

// created is the same after response.created.
func created(f *upstream.Fault) outcome.Facts {
	return outcome.Facts{Fault: f, Dispatch: outcome.DispatchTerminal, Created: true}
}

func upgrade(f *upstream.Fault) outcome.Facts { return outcome.Facts{Fault: f, Refused: true} }

func cut(cause upstream.Cause, code int, c outcome.Certainty) outcome.Facts {
	return outcome.Facts{End: &upstream.Ended{Cause: cause, Code: code}, Dispatch: c}
}

type row struct {
	name  string
	facts outcome.Facts
	want  outcome.Kind
}

// refusals are answers to a request, as an HTTP answer, a frame or an event.
func refusals(t *testing.T) []row {
	body := func(status int, text string) outcome.Facts {
		return sent(answered(t, status, map[string]string{"Content-Type": jsonType}, text))
	}
	return []row{
		{"context too long", created(failed(`{"code":"context_length_exceeded","message":"Your input exceeds the context window of this model."}`)), outcome.CallerError},
		{"400 with a field", body(400, `{"error":{"message":"Unknown parameter: 'foo'.","type":"invalid_request_error","param":"foo","code":"unknown_parameter"}}`), outcome.CallerError},
		{"400 with a detail", body(400, `{"detail":"Stream must be set to true"}`), outcome.CallerError},
		{"404 no such model", body(404, `{"error":{"message":"The model does not exist.","type":"invalid_request_error","param":null,"code":"model_not_found"}}`), outcome.CallerError},
		{"422", body(422, `{"detail":[{"loc":["body","input"],"msg":"field required"}]}`), outcome.CallerError},
		{"error frame without a status", sent(frame(`{"type":"error","code":"invalid_request_error","message":"bad","param":null}`)), outcome.CallerError},

		{"policy", created(failed(`{"code":"cyber_policy","message":"This request was flagged."}`)), outcome.PolicyRefusal},
		{"safety as HTTP", body(400, `{"error":{"message":"Your request was rejected by the safety system.","type":"invalid_request_error","code":"content_policy_violation"}}`), outcome.PolicyRefusal},

		{"413", body(413, `{"detail":"Payload too large"}`), outcome.TooLarge},
		{"close 1009", cut(upstream.CauseAbrupt, 1009, outcome.DispatchSent), outcome.TooLarge},

		{"no such anchor", sent(frame(`{"type":"error","status":400,"error":{"type":"invalid_request_error","code":"previous_response_not_found",` +
			`"message":"Previous response with id 'resp_x' not found.","param":"previous_response_id"}}`)), outcome.AnchorDenied},
		{"no such anchor, by words", body(400, "{\"error\":{\"type\":\"invalid_request_error\",\"message\":\"Invalid `previous_response_id`.\"}}"), outcome.AnchorDenied},
		{"no tool output", sent(frame(`{"type":"error","status":400,"error":{"type":"invalid_request_error","code":null,"param":"input",` +
			`"message":"No tool output found for function call call_1."}}`)), outcome.MissingToolOutput},
		{"B27: sealed by another account", body(400, `{"error":{"message":"The encrypted content could not be verified.","type":"invalid_request_error","param":null,"code":"invalid_encrypted_content"}}`), outcome.SealedForeign},
		{"socket is an hour old", sent(frame(`{"type":"error","status":400,"error":{"type":"invalid_request_error","code":"websocket_connection_limit_reached",` +
			`"message":"Responses websocket connection limit reached (60 minutes)."}}`)), outcome.ConnectionLimit},

		{"401", body(401, `{"error":{"message":"Incorrect API key provided.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`), outcome.AuthRejected},
		{"401 without a body", sent(answered(t, 401, nil, "")), outcome.AuthRejected},
		{"token revoked, as frame", sent(frame(`{"type":"error","status":401,"error":{"type":"authentication_error","code":"token_invalidated","message":"Your token has been invalidated."}}`)), outcome.AuthRejected},
		{"login ended", body(403, `{"error":{"code":"app_session_terminated","message":"Your session has ended."}}`), outcome.AuthRejected},
		{"402", body(402, `{"detail":{"code":"deactivated_workspace"}}`), outcome.Entitlement},
		{"403 of the API", body(403, `{"error":{"message":"You have insufficient permissions for this operation.","type":"invalid_request_error","code":"insufficient_permissions"}}`), outcome.Forbidden},
		{"closed account", body(401, `{"error":{"message":"The account has been deactivated.","type":"invalid_request_error","code":"account_deactivated"}}`), outcome.Deactivated},

		{"rate of the account", sent(answered(t, 429, map[string]string{"Content-Type": jsonType, "X-Ratelimit-Reset-Tokens": "6m0s"},
			`{"error":{"message":"Rate limit reached for gpt-5.5. Please try again in 2.5s.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`)), outcome.RateLimited},
		{"rate without a code, with a reset", body(429, `{"error":{"message":"Too many requests","resets_in_seconds":30}}`), outcome.RateLimited},
		{"rate without a code, with headers", sent(answered(t, 429, map[string]string{"X-Ratelimit-Reset-Requests": "1s"}, "")), outcome.RateLimited},
		{"rate, in mid-stream", created(failed(`{"code":"rate_limit_exceeded","message":"Rate limit reached."}`)), outcome.RateLimited},
		{"T04: usage limit", body(429, `{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","plan_type":"plus","resets_at":1764500000,"resets_in_seconds":8000}}`), outcome.QuotaExhausted},
		{"no quota", body(429, `{"error":{"message":"You exceeded your current quota.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`), outcome.QuotaExhausted},
		{"usage not included", created(failed(`{"code":"usage_not_included","message":"To use Codex with your plan, upgrade."}`)), outcome.QuotaExhausted},
		{"usage limit by its type", body(429, `{"error":{"type":"usage_limit_reached","code":"weekly","message":"m"}}`), outcome.QuotaExhausted},
		{"model not of the plan", body(400, `{"detail":"The 'gpt-9-codex' model is not supported when using Codex with a ChatGPT account."}`), outcome.ModelNotForAccount},
		{"model without room", sent(frame(`{"type":"error","status":503,"error":{"type":"server_error","message":"Selected model is at capacity. Please try a different model."}}`)), outcome.ModelAtCapacity},

		{"429 of an edge", sent(answered(t, 429, map[string]string{"Content-Type": htmlType, "Retry-After": "5"}, "<html>error code: 1015</html>")), outcome.EdgeLimited},
		{"429 that says nothing", body(429, `{"error":{"message":"Too many requests"}}`), outcome.EdgeLimited},
		{"403 of an edge", sent(answered(t, 403, map[string]string{"Content-Type": htmlType}, "<html>Attention Required!</html>")), outcome.EdgeBlocked},
		{"wrong country", body(403, `{"error":{"code":"unsupported_country_region_territory","message":"Country, region, or territory not supported","type":"request_forbidden"}}`), outcome.EdgeBlocked},
		{"T23: bare 503", sent(answered(t, 503, map[string]string{"Content-Type": htmlType}, "<html>Service Unavailable</html>")), outcome.Unavailable},
		{"503 with a code that says nothing", sent(frame(`{"type":"error","status":503,"error":{"type":"server_error","code":"server_error","message":"unavailable"},"headers":{"retry-after":"3"}}`)), outcome.Unavailable},
		{"T23: 503 with the overload code", body(503, `{"error":{"message":"overloaded","type":"server_error","code":"server_is_overloaded"}}`), outcome.Overloaded},
		{"529", body(529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), outcome.Overloaded},
		{"overload by its type", body(503, `{"error":{"type":"overloaded_error","code":"no_capacity_in_region","message":"m"}}`), outcome.Overloaded},
		{"529 without a body", sent(answered(t, 529, nil, "")), outcome.Overloaded},
		{"slow down", sent(frame(`{"type":"error","status":503,"error":{"code":"slow_down","message":"Slow down"}}`)), outcome.Overloaded},
		{"B41: overload inside a 200", created(failed(`{"code":"server_is_overloaded","message":"Our servers are currently overloaded. Please try again later."}`)), outcome.Overloaded},
		{"T23: 502 of an edge", sent(answered(t, 502, map[string]string{"Content-Type": htmlType}, "<html>502 Bad Gateway</html>")), outcome.ServerError},
		{"500", body(500, `{"error":{"message":"The server had an error","type":"server_error","param":null,"code":null}}`), outcome.ServerError},
		{"524", sent(answered(t, 524, map[string]string{"Content-Type": htmlType}, "error code: 524")), outcome.ServerError},
		{"200 with a page", sent(answered(t, 200, map[string]string{"Content-Type": htmlType}, "<html>Login</html>")), outcome.ServerError},
		{"408 of an edge", sent(answered(t, 408, nil, "")), outcome.ServerError},
		{"error frame of nothing", sent(frame(`{"type":"error"}`)), outcome.ServerError},
		{"failed by its own word", created(failed(`{"code":"server_error","message":"An error occurred while processing your request."}`)), outcome.ResponseFailed},
	}
}

// ends are what comes without an answer, and refused upgrades.
func ends() []row {
	silent := func(s outcome.Silence, by outcome.Source) outcome.Facts {
		return outcome.Facts{Silence: s, Deadline: by, Dispatch: outcome.DispatchSent}
	}
	with := func(f outcome.Facts, change func(*outcome.Facts)) outcome.Facts { change(&f); return f }
	life := func(f *outcome.Facts) { f.Created, f.Life, f.Dispatch = true, true, outcome.DispatchAcked }
	return []row{
		{"nothing", outcome.Facts{}, outcome.NotSent},
		{"T15: the socket ended before the request", cut(upstream.CauseAbrupt, 1006, outcome.DispatchNone), outcome.NotSent},
		{"completed", outcome.Facts{Finish: outcome.FinishCompleted, Dispatch: outcome.DispatchTerminal, Created: true, Life: true, Visible: true}, outcome.OK},
		{"out of tokens", outcome.Facts{Finish: outcome.FinishIncomplete, Dispatch: outcome.DispatchTerminal, Created: true, Life: true}, outcome.Incomplete},

		{"426", upgrade(frame(`{"type":"error","status":426,"error":{"message":"Upgrade Required"}}`)), outcome.NoWebSocket},
		{"404", upgrade(frame(`{"type":"error","status":404,"error":{"message":"Not Found"}}`)), outcome.NoWebSocket},
		{"upgrade: 401", upgrade(frame(`{"type":"error","status":401,"error":{"code":"token_expired","message":"expired"}}`)), outcome.AuthRejected},
		{"upgrade: 503", upgrade(frame(`{"type":"error","status":503,"error":{"type":"upstream_error","code":"upstream_protocol_error"}}`)), outcome.UpgradeFailed},
		{"upgrade: 502", upgrade(frame(`{"type":"error","status":502,"error":{"type":"upstream_error","code":"upstream_protocol_error"}}`)), outcome.UpgradeFailed},
		{"upgrade: overloaded", upgrade(frame(`{"type":"error","status":503,"error":{"code":"server_is_overloaded","message":"m"}}`)), outcome.Overloaded},
		{"T19: reset in the upgrade", outcome.Facts{Dial: outcome.PhaseUpgrade}, outcome.UpgradeFailed},
		{"T14: no such name", outcome.Facts{Dial: outcome.PhaseDNS}, outcome.DNSFailed},
		{"refused", outcome.Facts{Dial: outcome.PhaseConnect}, outcome.ConnectFailed},
		{"T19: reset in TLS", outcome.Facts{Dial: outcome.PhaseTLS}, outcome.TLSFailed},
		{"CONNECT refused", outcome.Facts{Dial: outcome.PhaseProxy}, outcome.ProxyFailed},

		{"reset while sending", cut(upstream.CauseAbrupt, 0, outcome.DispatchPartial), outcome.WriteCut},
		{"T18: reset before headers", cut(upstream.CauseAbrupt, 0, outcome.DispatchSent), outcome.CutEventless},
		{"abnormal close without an event", cut(upstream.CauseAbrupt, 1006, outcome.DispatchSent), outcome.CutEventless},
		{"good-bye without an answer", cut(upstream.CauseClean, 1000, outcome.DispatchSent), outcome.CleanClose},
		{"end of the body before the terminal event", with(cut(upstream.CauseClean, 0, outcome.DispatchAcked), life), outcome.Truncated},
		{"unfinished", with(outcome.Facts{}, life), outcome.Truncated},
		{"close 1009 after events", with(cut(upstream.CauseAbrupt, 1009, outcome.DispatchAcked), life), outcome.Truncated},
		{"no pong", with(cut(upstream.CauseLiveness, 0, outcome.DispatchAcked), life), outcome.LivenessLost},
		{"T22: no JSON after good events", with(cut(upstream.CauseGarbage, 0, outcome.DispatchAcked), life), outcome.Garbage},
		{"an event that is too large", with(cut(upstream.CauseTooLarge, 0, outcome.DispatchAcked), life), outcome.Garbage},

		{"no header", silent(outcome.SilenceHeader, outcome.SourceOperator), outcome.HeaderTimeout},
		{"no first event", silent(outcome.SilenceFirstEvent, outcome.SourceOperator), outcome.FirstEventTimeout},
		{"idle", with(silent(outcome.SilenceIdle, outcome.SourceOperator), life), outcome.IdleTimeout},
		{"idle, and there was no event", silent(outcome.SilenceIdle, outcome.SourceOperator), outcome.FirstEventTimeout},
		{"T03: the caller's limit", silent(outcome.SilenceFirstEvent, outcome.SourceCaller), outcome.CallerDeadline},
		{"T03: the caller's limit while connecting", outcome.Facts{Dial: outcome.PhaseConnect, Deadline: outcome.SourceCaller}, outcome.CallerDeadline},
		{"the whole turn", with(silent(outcome.SilenceTotal, outcome.SourceOperator), life), outcome.BudgetSpent},
		{"silence before the request", outcome.Facts{Silence: outcome.SilenceFirstEvent, Deadline: outcome.SourceOperator}, outcome.NotSent},
		{"T09: client gone", outcome.Facts{ClientGone: true, Dispatch: outcome.DispatchSent, End: &upstream.Ended{Cause: upstream.CauseLocal}}, outcome.CallerGone},
		{"shed", outcome.Facts{Local: outcome.LocalShed}, outcome.Shed},
		{"drain", with(outcome.Facts{Local: outcome.LocalDrain}, life), outcome.Drained},
		{"closed here", cut(upstream.CauseLocal, 0, outcome.DispatchSent), outcome.Drained},
		{"our fault", outcome.Facts{Local: outcome.LocalInternal, Dispatch: outcome.DispatchSent}, outcome.Internal},
	}
}

func TestClassify(t *testing.T) {
	covered := map[outcome.Kind]bool{}
	for _, r := range append(refusals(t), ends()...) {
		covered[r.want] = true
		t.Run(r.name, func(t *testing.T) {
			if got := outcome.Classify(r.facts); got != r.want {
				t.Errorf("%v, want %v; fault %+v", got, r.want, r.facts.Fault)
			}
		})
	}
	for _, k := range outcome.Kinds() {
		if !covered[k] {
			t.Errorf("no case for %v", k)
		}
	}
}

func TestPhaseOf(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want outcome.Phase
	}{
		"none":     {errors.New("x"), outcome.PhaseNone},
		"name":     {&upstream.DialError{Stage: "connect", Err: &net.OpError{Op: "dial", Err: &net.DNSError{Name: "h", IsNotFound: true}}}, outcome.PhaseDNS},
		"connect":  {&upstream.DialError{Stage: "connect", Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}, outcome.PhaseConnect},
		"tls":      {&upstream.DialError{Stage: "tls", Err: errors.New("bad certificate")}, outcome.PhaseTLS},
		"proxy":    {&upstream.DialError{Stage: "connect", Err: &net.OpError{Op: "proxyconnect", Err: errors.New("403")}}, outcome.PhaseProxy},
		"upgrade":  {&upstream.DialError{Stage: "upgrade", Err: io.ErrUnexpectedEOF}, outcome.PhaseUpgrade},
		"wrapped":  {errors.Join(upstream.ErrNotSent, &upstream.DialError{Stage: "tls", Err: io.EOF}), outcome.PhaseTLS},
		"no error": {nil, outcome.PhaseNone},
	} {
		if got := outcome.PhaseOf(c.err); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
