package bundle

import (
	"encoding/base64"
	"strings"
	"testing"
)

func TestPeerKeys(t *testing.T) {
	good := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", PeerKeyBytes)))
	keys, err := Credentials{PeerKeys: []string{good, good}}.DecodePeerKeys()
	if err != nil || len(keys) != 2 || string(keys[1]) != strings.Repeat("k", PeerKeyBytes) {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	for _, bad := range []string{"", "canary!", base64.StdEncoding.EncodeToString([]byte("canary"))} {
		_, err := Credentials{PeerKeys: []string{good, bad}}.DecodePeerKeys()
		if err == nil || !strings.Contains(err.Error(), "peerKeys[1]") || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	with := Credentials{PeerKeys: []string{good}}.Seal()
	if with.Hash == (Credentials{}).Seal().Hash {
		t.Error("a peer key does not count in the hash")
	}
}
