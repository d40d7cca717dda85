package bundle

import (
	"errors"
	"strings"
	"testing"
)

func TestSealIsStableAndIgnoresGeneration(t *testing.T) {
	b := Bundle{Name: "chat", Pool: Pool{Accounts: []Account{{Name: "a"}}}}
	first, again := b.Seal(), b.Seal().Seal()
	if first.Hash == "" || first.Hash != again.Hash {
		t.Fatalf("hashes %q and %q", first.Hash, again.Hash)
	}
	b.Generation = 7
	if b.Seal().Hash != first.Hash {
		t.Error("a new generation of the same content has another hash")
	}
	b.Pool.Accounts[0].Weight = 1
	if b.Seal().Hash == first.Hash {
		t.Error("other content has the same hash")
	}
}

func TestDecode(t *testing.T) {
	raw, err := Bundle{Name: "chat"}.Seal().Encode()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := Decode(raw); err != nil || b.Name != "chat" {
		t.Fatalf("%+v, %v", b, err)
	}
	for name, tc := range map[string]struct {
		raw  string
		skew bool
	}{
		"other version": {strings.Replace(string(raw), `"contractVersion":1`, `"contractVersion":2`, 1), true},
		"cut":           {string(raw[:len(raw)/2]), false},
		"two documents": {string(raw) + "{}", false},
	} {
		if _, err := Decode([]byte(tc.raw)); err == nil || errors.Is(err, ErrVersionSkew) != tc.skew || !strings.Contains(err.Error(), FileName) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Decode([]byte(strings.Replace(string(raw), `{`, `{"newer":1,`, 1))); err != nil {
		t.Errorf("a field of a newer operator is refused: %v", err)
	}
}

func TestB60_CredentialErrorsQuoteNothing(t *testing.T) {
	for _, raw := range []string{`{"accounts":{"a":{"apiKey":"sk-canary"`, `{"accounts":"sk-canary"}`, `sk-canary`} {
		if _, err := DecodeCredentials([]byte(raw)); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%v", err)
		}
	}
}

func TestEncodeRefusesWhatFitsNoConfigMap(t *testing.T) {
	b := Bundle{Pool: Pool{Provider: Provider{CABundle: strings.Repeat("x", MaxBytes)}}}
	if _, err := b.Seal().Encode(); err == nil {
		t.Fatal("too large a bundle was encoded")
	}
}

func TestKeyDigest(t *testing.T) {
	if got := KeyDigest("cwk-demo"); len(got) != 64 || got != strings.ToLower(got) {
		t.Fatalf("digest %q", got)
	}
}
