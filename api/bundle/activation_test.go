package bundle

import "testing"

func TestHoldersAreReadAsTheyAreWritten(t *testing.T) {
	for _, h := range []Holder{{}, {Slot: "blue"}, {Slot: "green", Pod: "chat-green-1", UID: "u", Nonce: "n"}} {
		if got, ok := ParseHolder(h.String()); !ok || got != h {
			t.Errorf("%q is read as %+v, %v", h, got, ok)
		}
	}
	for _, foreign := range []string{"/", "blue/pod", "blue/pod/uid", "blue//uid/nonce", "blue/b/c/d/e", "/pod/uid/nonce", "red", "somebody else", "red/pod/uid/nonce"} {
		if got, ok := ParseHolder(foreign); ok {
			t.Errorf("%q is read as %+v", foreign, got)
		}
	}
}
