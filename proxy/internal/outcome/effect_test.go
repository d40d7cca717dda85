package outcome_test

import (
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/outcome"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// The rules that every row keeps, whatever it is about.
func TestTableKeepsItsRules(t *testing.T) {
	names := map[string]bool{}
	for _, k := range outcome.Kinds() {
		e := k.Effect()
		if name := k.String(); name == "" || names[name] {
			t.Errorf("%v: name %q is missing or there twice", k, name)
		} else {
			names[name] = true
		}
		for why, broken := range map[string]bool{
			"an unknown outcome runs again":                 e.Unknown && e.Retry != outcome.RetryNever,
			"the caller's evidence counts":                  e.Blame == outcome.BlameClient && e.Route != outcome.RouteNeutral,
			"our own evidence counts":                       e.Blame == outcome.BlameProxy && (e.Route != outcome.RouteNeutral || e.Probe != outcome.ProbeNeutral),
			"our own or the caller's end touches accounts":  (e.Blame == outcome.BlameProxy || e.Blame == outcome.BlameClient) && e.Account != outcome.AccountNone,
			"an account's evidence counts at once":          e.Blame == outcome.BlameAccount && e.Route == outcome.RouteCounted,
			"what counts is no failure of a probe":          e.Route == outcome.RouteCounted && e.Probe != outcome.ProbeFailure,
			"a failure of a probe does not count":           e.Probe == outcome.ProbeFailure && e.Route != outcome.RouteCounted,
			"a success is no success of a probe":            e.Route == outcome.RouteSuccess && e.Probe != outcome.ProbeSuccess,
			"401 reaches a client":                          e.ClientStatus == http.StatusUnauthorized,
			"413 reaches a client":                          e.ClientStatus == http.StatusRequestEntityTooLarge,
			"429 without the account's word":                e.ClientStatus == http.StatusTooManyRequests && e.Blame != outcome.BlameAccount,
			"an own code without a status":                  e.ClientCode != "" && e.ClientStatus == 0,
			"a code that nobody knows":                      e.ClientCode != "" && failure.New(e.ClientCode, "").Status != e.ClientStatus,
			"B111: rewritten to a code that ends a session": e.Rewrite == "server_is_overloaded" || e.Rewrite == "slow_down",
		} {
			if broken {
				t.Errorf("%v: %s: %+v", k, why, e)
			}
		}
	}
	if outcome.Kind(255).String() != "other" || outcome.Kind(255).Effect() != outcome.Internal.Effect() {
		t.Error("a kind beyond the table has a row of its own")
	}
}

// The columns that the design fixes: a change here is a change of contract.
func TestEffects(t *testing.T) {
	for k, want := range map[outcome.Kind]struct {
		route   outcome.Route
		probe   outcome.Probe
		account outcome.Account
		retry   outcome.Retry
		unknown bool
	}{
		outcome.OK:                {outcome.RouteSuccess, outcome.ProbeSuccess, outcome.AccountGood, outcome.RetryNever, false},
		outcome.CallerError:       {outcome.RouteNeutral, outcome.ProbeSuccess, outcome.AccountNone, outcome.RetryNever, false},
		outcome.PolicyRefusal:     {outcome.RouteNeutral, outcome.ProbeSuccess, outcome.AccountNone, outcome.RetryNever, false},
		outcome.AuthRejected:      {outcome.RouteNeutral, outcome.ProbeNeutral, outcome.AccountRefresh, outcome.RetryOther, false},
		outcome.Entitlement:       {outcome.RouteNeutral, outcome.ProbeNeutral, outcome.AccountRefresh, outcome.RetryOther, false},
		outcome.RateLimited:       {outcome.RouteIfMany, outcome.ProbeNeutral, outcome.AccountCoolDown, outcome.RetryOther, false},
		outcome.QuotaExhausted:    {outcome.RouteIfMany, outcome.ProbeNeutral, outcome.AccountQuota, outcome.RetryOther, false},
		outcome.EdgeLimited:       {outcome.RouteCounted, outcome.ProbeFailure, outcome.AccountNone, outcome.RetryOther, false},
		outcome.Unavailable:       {outcome.RouteCounted, outcome.ProbeFailure, outcome.AccountNone, outcome.RetryNever, false},
		outcome.Overloaded:        {outcome.RouteCounted, outcome.ProbeFailure, outcome.AccountNone, outcome.RetryOther, false},
		outcome.ServerError:       {outcome.RouteCounted, outcome.ProbeFailure, outcome.AccountNone, outcome.RetryNever, true},
		outcome.ConnectFailed:     {outcome.RouteCounted, outcome.ProbeFailure, outcome.AccountNone, outcome.RetryRedial, false},
		outcome.ProxyFailed:       {outcome.RouteCounted, outcome.ProbeFailure, outcome.AccountUnreachable, outcome.RetryRedial, false},
		outcome.WriteCut:          {outcome.RouteCounted, outcome.ProbeFailure, outcome.AccountNone, outcome.RetryNever, true},
		outcome.FirstEventTimeout: {outcome.RouteCounted, outcome.ProbeFailure, outcome.AccountSuspect, outcome.RetryNever, true},
		outcome.CallerDeadline:    {outcome.RouteNeutral, outcome.ProbeNeutral, outcome.AccountNone, outcome.RetryNever, true},
		outcome.IdleTimeout:       {outcome.RouteCounted, outcome.ProbeFailure, outcome.AccountSuspect, outcome.RetryNever, true},
		outcome.Truncated:         {outcome.RouteCounted, outcome.ProbeFailure, outcome.AccountSuspect, outcome.RetryNever, true},
		outcome.Garbage:           {outcome.RouteCounted, outcome.ProbeFailure, outcome.AccountNone, outcome.RetryNever, true},
		outcome.CallerGone:        {outcome.RouteNeutral, outcome.ProbeNeutral, outcome.AccountNone, outcome.RetryNever, false},
		outcome.Shed:              {outcome.RouteNeutral, outcome.ProbeNeutral, outcome.AccountNone, outcome.RetryNever, false},
		outcome.Internal:          {outcome.RouteNeutral, outcome.ProbeNeutral, outcome.AccountNone, outcome.RetryNever, true},
		outcome.Drained:           {outcome.RouteNeutral, outcome.ProbeNeutral, outcome.AccountNone, outcome.RetryNever, true},
	} {
		e := k.Effect()
		if e.Route != want.route || e.Probe != want.probe || e.Account != want.account || e.Retry != want.retry || e.Unknown != want.unknown {
			t.Errorf("%v: %+v, want %+v", k, e, want)
		}
	}
}

func TestScenarios(t *testing.T) {
	judge := func(f outcome.Facts) outcome.Effect { _, e := outcome.Judge(f); return e }

	t.Run("T10: a refusal for policy or a 400 is a success of a probe", func(t *testing.T) {
		for _, f := range []*upstream.Fault{
			failed(`{"code":"content_policy_violation","message":"m"}`),
			frame(`{"type":"error","status":400,"error":{"type":"invalid_request_error","message":"m"}}`),
		} {
			if e := judge(sent(f)); e.Probe != outcome.ProbeSuccess || e.Route != outcome.RouteNeutral {
				t.Errorf("%+v", e)
			}
		}
	})
	t.Run("T18: a reset after the request is unknown and runs once", func(t *testing.T) {
		e := judge(cut(upstream.CauseAbrupt, 0, outcome.DispatchSent))
		if !e.Unknown || e.Retry != outcome.RetryNever || e.ClientStatus != http.StatusBadGateway {
			t.Errorf("%+v", e)
		}
	})
	t.Run("T19: a reset while connecting is dialled again", func(t *testing.T) {
		for _, p := range []outcome.Phase{outcome.PhaseDNS, outcome.PhaseConnect, outcome.PhaseTLS, outcome.PhaseProxy, outcome.PhaseUpgrade} {
			if e := judge(outcome.Facts{Dial: p}); e.Unknown || e.Retry != outcome.RetryRedial {
				t.Errorf("phase %d: %+v", p, e)
			}
		}
	})
	t.Run("T22: garbage after good events never runs again", func(t *testing.T) {
		f := cut(upstream.CauseGarbage, 0, outcome.DispatchAcked)
		f.Created, f.Life = true, true
		if e := judge(f); !e.Unknown || e.Retry != outcome.RetryNever || e.ClientCode != failure.UpstreamProtocol {
			t.Errorf("%+v", e)
		}
	})
	t.Run("T23: a 502 of an edge is unknown, an overload runs once more", func(t *testing.T) {
		page := answered(t, 502, map[string]string{"Content-Type": htmlType}, "<html>Bad Gateway</html>")
		if e := judge(sent(page)); !e.Unknown || e.Retry != outcome.RetryNever {
			t.Errorf("502: %+v", e)
		}
		overload := answered(t, 503, map[string]string{"Content-Type": jsonType}, `{"error":{"code":"server_is_overloaded","message":"m"}}`)
		if e := judge(sent(overload)); e.Unknown || e.Retry != outcome.RetryOther {
			t.Errorf("503: %+v", e)
		}
	})
	t.Run("B41: an overload after created fails over, and not after work", func(t *testing.T) {
		f := created(failed(`{"code":"server_is_overloaded","message":"m"}`))
		if e := judge(f); e.Retry != outcome.RetryOther {
			t.Errorf("after created: %+v", e)
		}
		f.Life = true
		if e := judge(f); e.Retry != outcome.RetryNever {
			t.Errorf("after work: %+v", e)
		}
		f.Life, f.Visible = false, true
		if e := judge(f); e.Retry != outcome.RetryNever {
			t.Errorf("after the client saw it: %+v", e)
		}
		if e := judge(created(failed(`{"code":"rate_limit_exceeded","message":"m"}`))); e.Retry != outcome.RetryNever {
			t.Errorf("a limit after created: %+v", e)
		}
	})
	t.Run("B111: both frames of an overload mean the same, and are rewritten", func(t *testing.T) {
		for _, code := range []string{"server_is_overloaded", "slow_down"} {
			first, e1 := outcome.Judge(sent(frame(`{"type":"error","status":503,"error":{"code":"` + code + `","message":"m"}}`)))
			second, e2 := outcome.Judge(sent(failed(`{"code":"` + code + `","message":"m"}`)))
			if first != outcome.Overloaded || second != first || e1 != e2 || e1.Rewrite != "server_error" {
				t.Errorf("%s: %v %+v, %v %+v", code, first, e1, second, e2)
			}
		}
	})
	t.Run("B112: an overload never touches an account", func(t *testing.T) {
		for _, f := range []*upstream.Fault{
			frame(`{"type":"error","status":503,"error":{"code":"server_is_overloaded","message":"m"}}`),
			frame(`{"type":"error","status":429,"error":{"code":"slow_down","message":"m"}}`),
			frame(`{"type":"error","status":529,"error":{"message":"m"}}`),
			frame(`{"type":"error","status":503,"error":{"message":"Selected model is at capacity."}}`),
			failed(`{"code":"server_overloaded","message":"m"}`),
		} {
			for _, facts := range []outcome.Facts{sent(f), created(f), upgrade(f)} {
				if e := judge(facts); e.Account != outcome.AccountNone {
					t.Errorf("%+v: %+v", f, e)
				}
			}
		}
	})
	t.Run("B48: one broken connection is at most a doubt about its account", func(t *testing.T) {
		for _, r := range ends() {
			switch e := judge(r.facts); e.Account {
			case outcome.AccountNone, outcome.AccountGood, outcome.AccountSuspect, outcome.AccountUnreachable:
			default:
				if r.facts.Fault == nil {
					t.Errorf("%s: %v", r.name, e.Account)
				}
			}
		}
	})
}

// random facts, contradictions among them.
func random(r *rand.Rand, faults []*upstream.Fault) outcome.Facts {
	yes := func() bool { return r.IntN(4) == 0 }
	f := outcome.Facts{
		Refused: yes(), Created: yes(), Life: yes(), Visible: yes(), ClientGone: yes(),
		Dispatch: outcome.Certainty(r.IntN(6)),
	}
	if yes() {
		f.Finish = outcome.Finish(r.IntN(3))
	}
	if yes() {
		f.Fault = faults[r.IntN(len(faults))]
	}
	if yes() {
		f.Dial = outcome.Phase(r.IntN(8))
	}
	if yes() {
		f.End = &upstream.Ended{Cause: upstream.Cause(r.IntN(8)), Code: []int{0, 1000, 1006, 1009, 1011}[r.IntN(5)]}
	}
	if yes() {
		f.Silence, f.Deadline = outcome.Silence(r.IntN(6)), outcome.Source(r.IntN(4))
	}
	if yes() {
		f.Local = outcome.Local(r.IntN(5))
	}
	return f
}

// consistent says what is wrong with a judgement, or nothing.
func consistent(f outcome.Facts) string {
	k, e := outcome.Judge(f)
	fromUpstream := f.Finish == outcome.FinishNone && !f.ClientGone && f.Local == outcome.LocalNone && f.Deadline != outcome.SourceCaller
	switch {
	case k.String() == "other" || k.String() == "":
		return "no kind"
	case e.Unknown && e.Retry != outcome.RetryNever:
		return "unknown, and runs again"
	case (f.Life || f.Visible) && e.Retry != outcome.RetryNever:
		return "runs again after work"
	case f.Dispatch != outcome.DispatchNone && !f.Refused && e.Retry == outcome.RetryRedial:
		return "redials what was sent"
	case f.Dispatch == outcome.DispatchNone && e.Unknown:
		return "unknown, and never left"
	case e.Route == outcome.RouteCounted && !fromUpstream:
		return "counts what this side or the caller did"
	case e.Account > outcome.AccountGood && !fromUpstream:
		return "touches an account for what this side or the caller did"
	case e.Account >= outcome.AccountCoolDown && e.Account <= outcome.AccountModel && f.Fault == nil:
		return "touches an account without its evidence"
	case f.Finish == outcome.FinishCompleted && k != outcome.OK:
		return "a completed response is no success"
	}
	return ""
}

func TestJudgeIsTotalAndConsistent(t *testing.T) {
	faults := make([]*upstream.Fault, 0, 64)
	for _, r := range append(refusals(t), ends()...) {
		if r.facts.Fault != nil {
			faults = append(faults, r.facts.Fault)
		}
	}
	faults = append(faults, &upstream.Fault{}) // nothing is said at all
	r := rand.New(rand.NewPCG(1, 2))
	for range 300_000 {
		if f := random(r, faults); consistent(f) != "" {
			t.Fatalf("%s: %+v, fault %+v", consistent(f), f, f.Fault)
		}
	}
}

// accountWords is every way in which an upstream can speak of an account.
func accountEvidence(f *upstream.Fault, k outcome.Kind) bool {
	switch k {
	case outcome.RateLimited:
		return f.Status == http.StatusTooManyRequests || f.Limit() || f.Type == "rate_limit_error" || f.Type == "rate_limit_exceeded"
	case outcome.Forbidden:
		return f.Status == http.StatusForbidden
	case outcome.Entitlement:
		return f.Status == http.StatusPaymentRequired
	default:
		return f.Status == http.StatusUnauthorized || f.Code != "" || f.Type != "" || f.Message != ""
	}
}

// FuzzClassify: any bytes as the body of an error, with any status.
func FuzzClassify(f *testing.F) {
	for _, s := range []struct {
		status int
		body   string
	}{
		{429, `{"error":{"type":"usage_limit_reached","resets_at":1764500000}}`},
		{429, `{"error":{"message":"Too many requests","resets_in_seconds":"x"}}`},
		{503, `{"error":{"code":"server_is_overloaded"}}`},
		{401, ``}, {403, `<html>`}, {502, "\x00\xff"}, {0, `{"type":"error","code":7,"message":[1]}`},
		{400, `{"error":{"code":"previous_response_not_found","param":"previous_response_id"}}`},
		{529, `{"error":{"type":"overloaded_error"},"headers":{"retry-after":"3"}}`},
		{-7, `{"error":null}`}, {1 << 30, `[]`},
	} {
		f.Add(s.status, []byte(s.body), uint8(0))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte, flags uint8) {
		for _, name := range []string{"error", "response.failed"} {
			fault := upstream.ReadFault(upstream.Own(name, body))
			fault.Status = status
			facts := outcome.Facts{
				Fault: &fault, Dispatch: outcome.Certainty(flags % 5), Refused: flags&8 != 0,
				Created: flags&16 != 0, Life: flags&32 != 0, Visible: flags&64 != 0, ClientGone: flags&128 != 0,
			}
			if why := consistent(facts); why != "" {
				t.Fatalf("%s: %+v %+v", why, facts, fault)
			}
			k, e := outcome.Judge(facts)
			if e.Account != outcome.AccountNone && !accountEvidence(&fault, k) {
				t.Fatalf("%v touches the account without its evidence: %+v", k, fault)
			}
			if e.Route == outcome.RouteCounted && status >= 400 && status < 500 && e.Blame == outcome.BlameClient {
				t.Fatalf("%v counts what the caller did: %+v", k, fault)
			}
			if again, _ := outcome.Judge(facts); again != k {
				t.Fatal("not a function of the facts")
			}
		}
	})
}
