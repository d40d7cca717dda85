package telemetry

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestSessionMetrics(t *testing.T) {
	m := NewMetrics("v")
	before := scrape(t, m)
	for _, line := range []string{ // a counter that appears with 1 has no rate
		`causeway_proxy_strikes_total{class="clean_close"} 0`,
		`causeway_proxy_suppressions_total{reason="hard_key_half_open"} 0`,
		`causeway_proxy_probes_total{outcome="closed"} 0`,
		`causeway_proxy_anchors_retired_total{cause="failed_again"} 0`,
		`causeway_proxy_replays_total{proof="transcript"} 0`,
		`causeway_proxy_store_errors_total{op="transcript"} 0`,
		`causeway_proxy_peer_forwards_total{outcome="ambiguous"} 0`,
		`causeway_proxy_fenced_writes_total 0`,
	} {
		if !strings.Contains(before, line+"\n") {
			t.Errorf("missing %s", line)
		}
	}
	m.Strike(StrikeIdleTimeout)
	m.Suppressed(SuppressedCooldown)
	m.Probe(ProbeReturned)
	m.AnchorRetired(RetiredDenied)
	m.Replayed(ProofUnsubmitted)
	m.StoreFailed(StoreClaim)
	m.PeerForward(ForwardRejected)
	m.FencedWrite()
	m.WatchCircuits(func() (int, int) { return 3, 1 })
	m.WatchStore(func() StoreState {
		return StoreState{OutboxItems: 4, OutboxAge: 90 * time.Second, Leases: 7, RenewLate: -time.Second}
	})
	after := scrape(t, m)
	for _, line := range []string{
		`causeway_proxy_strikes_total{class="idle_timeout"} 1`,
		`causeway_proxy_suppressions_total{reason="hard_key_cooldown"} 1`,
		`causeway_proxy_probes_total{outcome="returned"} 1`,
		`causeway_proxy_anchors_retired_total{cause="anchor_denied"} 1`,
		`causeway_proxy_replays_total{proof="unsubmitted"} 1`,
		`causeway_proxy_store_errors_total{op="claim"} 1`,
		`causeway_proxy_peer_forwards_total{outcome="rejected"} 1`,
		`causeway_proxy_fenced_writes_total 1`,
		`causeway_proxy_circuits{state="open"} 3`,
		`causeway_proxy_circuits{state="half_open"} 1`,
		`causeway_proxy_store_outbox_items 4`,
		`causeway_proxy_store_outbox_age_seconds 90`,
		`causeway_proxy_store_leases 7`,
		`causeway_proxy_store_lease_renew_late_seconds 0`,
	} {
		if !strings.Contains(after, line+"\n") {
			t.Errorf("missing %s", line)
		}
	}
}

// Sessions speak in names; a name nobody knows makes no series of its own.
func TestSessionMetricsAreBounded(t *testing.T) {
	m := NewMetrics("v")
	random := func() int { return rand.IntN(40) - 10 }
	for range 10_000 {
		m.Strike(StrikeClass(random()))
		m.Suppressed(Suppression(random()))
		m.Probe(ProbeOutcome(random()))
		m.AnchorRetired(RetireCause(random()))
		m.Replayed(Proof(random()))
		m.StoreFailed(StoreOp(random()))
		m.PeerForward(ForwardOutcome(random()))
	}
	m.Strike(StrikeClassOf("surprise"))
	m.Suppressed(SuppressionOf("surprise"))
	m.Probe(ProbeOutcomeOf("surprise"))
	m.AnchorRetired(RetireCauseOf("surprise"))
	m.Replayed(ProofOf("surprise"))
	m.StoreFailed(StoreOpOf("surprise"))
	m.PeerForward(ForwardOutcomeOf("surprise"))
	text := scrape(t, m)
	if strings.Contains(text, "surprise") {
		t.Error("an unknown name became a series")
	}
	for metric, names := range map[string][]string{
		"strikes_total": strikeNames, "suppressions_total": suppressionNames, "probes_total": probeNames,
		"anchors_retired_total": retireNames, "replays_total": proofNames, "store_errors_total": storeOpNames,
		"peer_forwards_total": forwardNames,
	} {
		if n := strings.Count(text, "\ncauseway_proxy_"+metric+"{"); n != len(names)+1 { // and "other"
			t.Errorf("%s has %d series, want %d", metric, n, len(names)+1)
		}
	}
}

// Each value has a name, and the name leads back to it.
func TestNamesLeadBack(t *testing.T) {
	for name, of := range map[string]struct {
		names []string
		back  func(string) string
	}{
		"StrikeClass":    {strikeNames, func(n string) string { return StrikeClassOf(n).String() }},
		"Suppression":    {suppressionNames, func(n string) string { return SuppressionOf(n).String() }},
		"ProbeOutcome":   {probeNames, func(n string) string { return ProbeOutcomeOf(n).String() }},
		"RetireCause":    {retireNames, func(n string) string { return RetireCauseOf(n).String() }},
		"Proof":          {proofNames, func(n string) string { return ProofOf(n).String() }},
		"StoreOp":        {storeOpNames, func(n string) string { return StoreOpOf(n).String() }},
		"ForwardOutcome": {forwardNames, func(n string) string { return ForwardOutcomeOf(n).String() }},
	} {
		for _, n := range of.names {
			if got := of.back(n); got != n {
				t.Errorf("%s %q leads to %q", name, n, got)
			}
		}
		if camel := strings.ReplaceAll(strings.ToUpper(of.names[0]), "_", ""); of.back(camel) != of.names[0] {
			t.Errorf("%s %q leads to %q", name, camel, of.back(camel))
		}
		if got := of.back("surprise"); got != other {
			t.Errorf("%s: an unknown name leads to %q", name, got)
		}
	}
	for _, set := range [][2]int{ // constants and names go in step
		{int(StrikeIdleTimeout), len(strikeNames)}, {int(SuppressedOwner), len(suppressionNames)},
		{int(ProbeReturned), len(probeNames)}, {int(RetiredFailedAgain), len(retireNames)}, {int(ProofTranscript), len(proofNames)},
		{int(StoreShare), len(storeOpNames)}, {int(ForwardRejected), len(forwardNames)},
	} {
		if set[0]+1 != set[1] {
			t.Errorf("the last constant is %d of %d", set[0], set[1])
		}
	}
}
