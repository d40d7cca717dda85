package activation

import (
	"testing"

	"github.com/causeway-dev/causeway/api/bundle"
)

func captain(slot, nonce string) bundle.Holder {
	return bundle.Holder{Slot: slot, Pod: "chat-" + slot + "-0", UID: "uid", Nonce: nonce}
}

func TestJudge(t *testing.T) {
	seen := func(holder bundle.Holder, epoch int64, next string) Knowledge {
		return Knowledge{Sight: Sight{Holder: holder, Epoch: epoch, Next: next}, Seen: true, Highest: epoch}
	}
	for name, tc := range map[string]struct {
		known Knowledge
		want  Verdict
	}{
		"nothing is known yet":                              {Knowledge{}, Verdict{Hold, 0}},
		"nobody could have been given authority":            {Knowledge{Blind: true}, Verdict{Serve, 0}},
		"nor can anybody now that the store shows an epoch": {Knowledge{Blind: true, Highest: 3}, Verdict{Serve, 3}},
		"ours":                                    {seen(captain("blue", "n"), 4, "blue"), Verdict{Serve, 4}},
		"ours, and nobody asks for another":       {seen(captain("blue", "n"), 4, ""), Verdict{Serve, 4}},
		"ours, between two captains":              {seen(bundle.Holder{Slot: "blue"}, 4, "blue"), Verdict{Serve, 4}},
		"ours, and asked to go":                   {seen(captain("blue", "n"), 4, "green"), Verdict{Hold, 4}},
		"released":                                {seen(bundle.Holder{}, 4, "green"), Verdict{Hold, 4}},
		"the other's":                             {seen(captain("green", "n"), 5, "green"), Verdict{Relay, 5}},
		"the other's, asked to give it to us":     {seen(captain("green", "n"), 5, "blue"), Verdict{Hold, 5}},
		"T40: ours, but a higher epoch was heard": {Knowledge{Sight: Sight{Holder: captain("blue", "n"), Epoch: 4}, Seen: true, Highest: 5}, Verdict{Hold, 4}},
		"T50: ours, before the process stood still": {Knowledge{Sight: Sight{Holder: captain("blue", "n"), Epoch: 4}, Seen: true, Stale: true,
			Highest: 4}, Verdict{Hold, 4}},
		"somebody who is no proxy holds it": {Knowledge{Sight: Sight{Foreign: true, Epoch: 4}, Seen: true, Highest: 4}, Verdict{Hold, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Judge("blue", tc.known); got != tc.want {
				t.Errorf("got %v %d, want %v %d", got.Mode, got.Epoch, tc.want.Mode, tc.want.Epoch)
			}
		})
	}
}
