package proxy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
	"github.com/causeway-dev/causeway/proxy/internal/report"
)

func TestB42_AReportSaysAllThatIsKnownOfAccounts(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	got := reportedAccounts([]account.State{
		{Name: "a", State: account.Usable, Inflight: 2},
		{Name: "b", State: account.QuotaExhausted, Reason: account.ReasonQuotaExhausted, Since: start, Until: start.Add(time.Hour),
			NextProbe: start.Add(time.Minute), Generation: 7,
			Usage: []account.Window{{Name: "Primary", Used: 100, Length: 5 * time.Hour, ResetsAt: start.Add(time.Hour)}}},
	})
	want := []report.Account{
		{Name: "a", State: "Usable", Inflight: 2},
		{Name: "b", State: "QuotaExhausted", Reason: "QuotaExhausted", Since: start, Until: start.Add(time.Hour),
			NextProbe: start.Add(time.Minute), Generation: 7,
			Usage: []report.Window{{Name: "Primary", UsedPercent: 100, Length: 5 * time.Hour, ResetsAt: start.Add(time.Hour)}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAReportSaysWhichLanesHaveNoLimit(t *testing.T) {
	got := reportedLanes([]bulkhead.State{
		{Lane: bulkhead.Compact, Inflight: 1, Queued: 2, Limits: bulkhead.Limits{MaxConcurrent: 32}}, {Lane: bulkhead.Media}})
	want := []report.Lane{{Lane: "Compact", Inflight: 1, Queued: 2, Limit: 32}, {Lane: "Media"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
