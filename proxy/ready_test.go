package proxy

import (
	"context"
	"testing"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/server"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

func TestT58_OneAccountNeverCountsWhileAnotherServes(t *testing.T) {
	for name, tt := range map[string]struct {
		states []string
		want   server.Condition
		reason string
	}{
		"all serve":                 {[]string{account.Usable, account.Usable}, server.OK, ""},
		"one of three is dead":      {[]string{account.Usable, account.ReauthRequired, account.Usable}, server.Degraded, "2 of 3 accounts can serve now: 1 ReauthRequired"},
		"all are dead":              {[]string{account.ReauthRequired, account.Unknown, account.ReauthRequired}, server.Down, "no account can serve: 2 ReauthRequired, 1 Unknown"},
		"the only one is dead":      {[]string{account.ReauthRequired}, server.Down, "no account can serve: 1 ReauthRequired"},
		"all have used their quota": {[]string{account.QuotaExhausted, account.QuotaExhausted}, server.Degraded, "0 of 2 accounts can serve now: 2 QuotaExhausted"},
		"all cool down":             {[]string{account.CoolingDown}, server.Degraded, "0 of 1 accounts can serve now: 1 CoolingDown"},
		"one has, others are dead":  {[]string{account.QuotaExhausted, account.Unknown}, server.Degraded, "0 of 2 accounts can serve now: 1 QuotaExhausted, 1 Unknown"},
		"one is off by wish":        {[]string{account.Usable, account.Disabled}, server.OK, ""},
		"all are off by wish":       {[]string{account.Disabled, account.Draining}, server.Down, "no account can serve: 1 Disabled, 1 Draining"},
		"there are none":            {nil, server.Degraded, "the pool has no accounts"},
		// T60: until its refresh is denied, an account is as good as its last answer.
		"T60 a token is refreshed": {[]string{account.Usable}, server.OK, ""},
		"T60 a refresh is denied":  {[]string{account.Usable, account.ReauthRequired}, server.Degraded, "1 of 2 accounts can serve now: 1 ReauthRequired"},
	} {
		t.Run(name, func(t *testing.T) {
			var states []account.State
			for _, s := range tt.states {
				states = append(states, account.State{State: s})
			}
			if got := usable(states); got != (server.Finding{Condition: tt.want, Reason: tt.reason}) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// aliases is a store that answers one question.
type aliases struct {
	store.Store
	err error
}

func (a aliases) Alias(context.Context, string) ([]byte, error) { return nil, a.err }

func TestTheStoreIsReachableIfItAnswers(t *testing.T) {
	for err, want := range map[error]server.Condition{nil: server.OK, store.ErrNotFound: server.OK, store.ErrUnavailable: server.Down} {
		if got := reachable(aliases{err: err})(t.Context()); got.Condition != want || (got.Reason == "") != (want == server.OK) {
			t.Errorf("%v: %+v", err, got)
		}
	}
}
