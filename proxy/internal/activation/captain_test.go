package activation

import (
	"testing"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
)

var terms = Terms{Lease: 30 * time.Second, Renew: 20 * time.Second, Retry: 5 * time.Second}

func TestNext(t *testing.T) {
	me, sibling, other := captain("blue", "me"), bundle.Holder{Slot: "blue", Pod: "chat-blue-1", UID: "u", Nonce: "n"}, captain("green", "n")
	const now = time.Hour
	long := now - terms.Lease
	for name, tc := range map[string]struct {
		p    Position
		want Move
	}{
		"free, and ours to take": {Position{Sight: Sight{Next: "blue"}, Eligible: true, Looked: now}, Acquire},
		"free, and not ours":     {Position{Sight: Sight{Next: "green"}, Eligible: true}, Stay},
		"free, and nobody asked": {Position{Sight: Sight{}, Eligible: true}, Stay},
		"free, and we are going": {Position{Sight: Sight{Next: "blue"}, Looked: now}, Stay},
		"held by a sibling":      {Position{Sight: Sight{Holder: sibling, Next: "blue"}, Eligible: true, Looked: long + 1}, Stay},
		"T49: held by who does not renew, an earlier process of this pod for one": {Position{Sight: Sight{Holder: captain("blue", "before"), Next: "blue"},
			Eligible: true, Looked: long}, Acquire},
		"our slot's, without a captain":       {Position{Sight: Sight{Holder: bundle.Holder{Slot: "blue"}, Next: "blue"}, Eligible: true, Looked: now}, Acquire},
		"the other slot's, without a captain": {Position{Sight: Sight{Holder: bundle.Holder{Slot: "green"}, Next: "blue"}, Eligible: true, Looked: now, Asked: now - 1}, Stay},
		"the same, a moment later":            {Position{Sight: Sight{Holder: bundle.Holder{Slot: "green"}, Next: "blue"}, Eligible: true, Looked: now, Asked: now - settleTime}, Acquire},
		"our slot's, and its captain does not know the epoch that was heard": {Position{Sight: Sight{Holder: sibling, Next: "blue", Epoch: 3}, Highest: 9,
			Eligible: true, Looked: now}, Acquire},
		"we are asked for, the other still holds":  {Position{Sight: Sight{Holder: other, Next: "blue"}, Eligible: true, Looked: long + 1}, Stay},
		"we are asked for, the other is silent":    {Position{Sight: Sight{Holder: other, Next: "blue"}, Eligible: true, Looked: long}, Acquire},
		"nobody is asked for, the other is silent": {Position{Sight: Sight{Holder: other}, Eligible: true, Looked: long}, Stay},
		"a stranger holds it":                      {Position{Sight: Sight{Foreign: true, Next: "blue"}, Eligible: true, Looked: now}, Stay},
		"a stranger held it":                       {Position{Sight: Sight{Foreign: true, Next: "blue"}, Eligible: true, Looked: long}, Acquire},
		"captain, time to renew":                   {Position{Sight: Sight{Holder: me, Next: "blue"}, Eligible: true, Renewed: now - terms.Retry}, Renew},
		"captain, not yet":                         {Position{Sight: Sight{Holder: me, Next: "blue"}, Eligible: true, Renewed: now - 1}, Stay},
		"captain, asked to go just now":            {Position{Sight: Sight{Holder: me, Next: "green"}, Eligible: true, Asked: now - 1}, Stay},
		"captain, asked to go a moment ago":        {Position{Sight: Sight{Holder: me, Next: "green"}, Eligible: true, Asked: now - settleTime}, Release},
		"captain, asked to go, and ending":         {Position{Sight: Sight{Holder: me, Next: "green"}, Asked: now - settleTime}, Release},
		"captain, ending":                          {Position{Sight: Sight{Holder: me, Next: "blue"}}, Resign},
		"T48: captain, the epoch was taken back":   {Position{Sight: Sight{Holder: me, Next: "blue", Epoch: 3}, Highest: 4, Eligible: true, Renewed: now}, Acquire},
	} {
		t.Run(name, func(t *testing.T) {
			tc.p.Me = me
			got, wait := Next(tc.p, terms, now)
			if got != tc.want || got == Stay && (wait <= 0 || wait > terms.Lease) {
				t.Errorf("got %v, again in %v; want %v", got, wait, tc.want)
			}
		})
	}
}

func TestAfter(t *testing.T) {
	me := captain("blue", "me")
	k := Knowledge{Sight: Sight{Holder: captain("green", "n"), Epoch: 4, Next: "blue", Version: "7", Renewed: "before"}, Highest: 6}
	wall := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const renewed = "2026-03-01T12:00:00.000000Z"
	for m, want := range map[Move]Sight{
		Stay:    k.Sight,
		Acquire: {Holder: me, Epoch: 7, Next: "blue", Version: "7", Renewed: renewed},
		Release: {Epoch: 4, Next: "blue", Version: "7", Renewed: renewed},
		Resign:  {Holder: bundle.Holder{Slot: "blue"}, Epoch: 4, Next: "blue", Version: "7", Renewed: renewed},
		Renew:   {Holder: captain("green", "n"), Epoch: 4, Next: "blue", Version: "7", Renewed: renewed},
	} {
		if got := After(m, me, k, wall); got != want {
			t.Errorf("%v: %+v, want %+v", m, got, want)
		}
	}
}
