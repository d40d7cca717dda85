package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/causeway-dev/causeway/api/bundle"
)

// planned are the peer keys of the documents that a plan writes.
func planned(t *testing.T, w World) []string {
	t.Helper()
	for _, action := range Next(w, start).Actions {
		if write, ok := action.(WriteConfig); ok {
			c, err := bundle.DecodeCredentials(write.Documents.Credentials)
			if err != nil {
				t.Fatal(err)
			}
			if c.Hash != write.Documents.CredentialsHash || c.Seal().Hash != c.Hash {
				t.Error("the hash is not that of the document")
			}
			return c.PeerKeys
		}
	}
	t.Fatal("nothing is written")
	return nil
}

func TestPeerKeysAreKept(t *testing.T) {
	f := newFake(t)
	f.step("first")
	f.w.FreshPeerKey = peerKey("another")
	if got := planned(t, f.w); !slices.Equal(got, []string{peerKey("fresh")}) {
		t.Errorf("got %d keys, want the stored one", len(got))
	}
	stored := func(keys ...string) []byte {
		raw, err := bundle.Credentials{PeerKeys: keys}.Seal().Encode()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	for name, tt := range map[string]struct {
		document []byte
		want     []string
	}{
		"current and previous": {stored(peerKey("b"), peerKey("a")), []string{peerKey("b"), peerKey("a")}},
		"none stored":          {nil, []string{peerKey("another")}},
		"of a release before":  {stored(), []string{peerKey("another")}},
		"spoilt document":      {[]byte("{"), []string{peerKey("another")}},
		"spoilt key":           {stored(peerKey("a"), "x"), []string{peerKey("another")}},
	} {
		t.Run(name, func(t *testing.T) {
			f.w.Credentials = tt.document
			if got := planned(t, f.w); !slices.Equal(got, tt.want) {
				t.Errorf("other keys than wanted")
			}
			if HasPeerKeys(tt.document) != (tt.want[0] != peerKey("another")) {
				t.Error("HasPeerKeys disagrees")
			}
		})
	}
}

func TestPeerKeysShowUpNowhereElse(t *testing.T) {
	f := newFake(t)
	p := f.step("first")
	for _, action := range p.Actions {
		if write, ok := action.(WriteConfig); ok && strings.Contains(string(write.Documents.Bundle), peerKey("fresh")) {
			t.Error("the key is in the ConfigMap")
		}
	}
}
