package circuit

import (
	"slices"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/outcome"
)

// Policy is what a CircuitPolicy says about the circuit of a route.
type Policy struct {
	// Consecutive failures open it.
	Consecutive int
	// Window is the period over which Percent of at least MinSamples is taken.
	Window              time.Duration
	MinSamples, Percent int
	// MinAccounts and MinCallers have to be among the failures, or as many as there
	// are: Accounts is the size of the pool.
	MinAccounts, MinCallers, Accounts int
	// Open is how long it stays open the first time, MaxOpen the longest.
	Open, MaxOpen time.Duration
	// HalfOpenMax probes run at once; Successes of them close it; each is waited for
	// as long as Verdict.
	HalfOpenMax, Successes int
	Verdict                time.Duration

	counted [classes]bool
}

// PolicyOf reads the policy of a bundle, where every number is effective. accounts
// is the number of accounts of the pool.
func PolicyOf(b bundle.Breaker, accounts int) Policy {
	s := func(n int) time.Duration { return time.Duration(n) * time.Second }
	p := Policy{
		Consecutive: max(1, b.ConsecutiveFailures),
		Window:      max(time.Second, s(b.WindowSeconds)), MinSamples: max(1, b.MinSamples), Percent: max(1, b.FailurePercent),
		MinAccounts: b.MinDistinctAccounts, MinCallers: b.MinDistinctCallers, Accounts: accounts,
		Open: max(time.Second, s(b.OpenSeconds)), HalfOpenMax: max(1, b.HalfOpenMaxCalls), Successes: max(1, b.SuccessThreshold),
		Verdict: max(time.Second, s(b.ProbeVerdictSeconds)),
	}
	p.MaxOpen = max(p.Open, s(b.MaxOpenSeconds))
	for c := range p.counted {
		p.counted[c] = slices.Contains(b.CountedFailures, classNames[c])
	}
	return p
}

// class is a kind of failure that a CircuitPolicy can leave out.
type class uint8

const (
	classConnect class = iota
	classTLS
	classStatus
	classSilent
	classProtocol
	classes
)

// classNames are those of countedFailures.
var classNames = [classes]string{"ConnectFailure", "TLSFailure", "Status5xx", "FirstEventTimeout", "ProtocolError"}

// classOf finds the class of a failure: what is not a failure of connecting, a
// status or a silence from the start is a stream that broke.
func classOf(k outcome.Kind) class {
	switch k {
	case outcome.DNSFailed, outcome.ConnectFailed, outcome.ProxyFailed:
		return classConnect
	case outcome.TLSFailed:
		return classTLS
	case outcome.EdgeLimited, outcome.Unavailable, outcome.Overloaded, outcome.ServerError, outcome.ResponseFailed,
		outcome.UpgradeFailed, outcome.RateLimited, outcome.QuotaExhausted:
		return classStatus
	case outcome.HeaderTimeout, outcome.FirstEventTimeout:
		return classSilent
	default:
		return classProtocol
	}
}

// direct says whether a failure cannot lie with an account or a caller, so that
// one of each is evidence enough.
func direct(k outcome.Kind) bool {
	return k == outcome.DNSFailed || k == outcome.ConnectFailed || k == outcome.TLSFailed
}

// route is what a kind tells a closed circuit under this policy.
func (p Policy) route(k outcome.Kind) outcome.Route {
	r := k.Effect().Route
	if (r == outcome.RouteCounted || r == outcome.RouteIfMany) && !p.counted[classOf(k)] {
		return outcome.RouteNeutral
	}
	return r
}

// probe is what a kind tells a half-open circuit under this policy.
func (p Policy) probe(k outcome.Kind) outcome.Probe {
	v := k.Effect().Probe
	if v == outcome.ProbeFailure && !p.counted[classOf(k)] {
		return outcome.ProbeNeutral
	}
	return v
}

// enoughAccounts says whether n distinct accounts are as many as are asked for.
func (p Policy) enoughAccounts(n int) bool { return n >= min(p.MinAccounts, max(1, p.Accounts)) }

// enoughCallers says whether n of the callers that are active are.
func (p Policy) enoughCallers(n, active int) bool { return n >= min(p.MinCallers, max(1, active)) }

// jitter is how far an open time is off, so that replicas do not probe in step.
const jitter = 0.2

// openFor is how long the circuit stays open when it opens for the nth time in a
// row: doubled each time up to MaxOpen, and off by up to a fifth, by the salt.
func (p Policy) openFor(n int, salt uint64) time.Duration {
	d := p.Open
	for range max(0, n-1) {
		if d >= p.MaxOpen {
			break
		}
		d *= 2
	}
	d = min(d, p.MaxOpen)
	f := jitter * (2*unit(salt, uint64(max(0, n))) - 1)
	off := time.Duration(float64(d) * f)
	if d+off > p.MaxOpen {
		off = -off // a clamp would bring replicas into step again
	}
	return d + off
}

// unit is a number in [0, 1) that depends on both arguments alone (splitmix64).
func unit(salt, n uint64) float64 {
	z := salt + (n+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return float64((z^z>>31)>>11) / (1 << 53)
}
