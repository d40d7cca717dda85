package proxy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/activation"
	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
	"github.com/causeway-dev/causeway/proxy/internal/report"
	"github.com/causeway-dev/causeway/proxy/internal/session"
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

// A slot is drained when its reports say so: turns that others serve for its clients
// are not done, and a pod without authority that has some does not stand by.
func TestB82_WhatIsUnderWayElsewhereIsNotDone(t *testing.T) {
	if s := reported(session.Overview{Draining: 1}, 2); s.Active != 0 || s.Draining != 3 {
		t.Errorf("%+v", s)
	}
	for name, tc := range map[string]struct {
		stopping bool
		mode     activation.Mode
		turns    int
		want     v1alpha1.ReplicaRole
	}{
		"authority":                       {false, activation.Serve, 0, v1alpha1.RoleServing},
		"no authority, and turns":         {false, activation.Relay, 1, v1alpha1.RoleDraining},
		"no authority, and nothing to do": {false, activation.Relay, 0, v1alpha1.RoleStandby},
		"a hand-over":                     {false, activation.Hold, 0, v1alpha1.RoleStandby},
		"stopping":                        {true, activation.Serve, 0, v1alpha1.RoleDraining},
	} {
		if got := roleOf(tc.stopping, tc.mode, tc.turns); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
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
