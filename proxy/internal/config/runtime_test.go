package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
)

func TestClient(t *testing.T) {
	rt, err := Load(folder(t, bundleFiles(t, 1, "a")))
	check(t, err)
	for key, want := range map[string]string{"cwk-alice": "alice", "cwk-alic": "", "cwk-alice ": "", "": "", bundle.KeyDigest("cwk-alice"): ""} {
		if name, ok := rt.Client(key); name != want || ok != (want != "") {
			t.Errorf("key %q is client %q, %v", key, name, ok)
		}
	}
	b := rt.Bundle
	b.Clients.Mode = bundle.ClientsOpen
	open, err := New(b, rt.Credentials)
	check(t, err)
	for _, key := range []string{"", "cwk-alice", "anything"} {
		if name, ok := open.Client(key); name != "" || !ok {
			t.Errorf("mode Open: key %q is client %q, %v", key, name, ok)
		}
	}
}

func TestNewJudgesClientDigests(t *testing.T) {
	cases := map[string]map[string]string{
		"clients[a]: not a SHA-256":      {"a": "cwk-" + canary},
		"clients[b]: not a SHA-256":      {"b": "00"},
		"clients[a] and clients[b] have": {"b": bundle.KeyDigest("x"), "a": strings.ToUpper(bundle.KeyDigest("x"))},
	}
	for want, clients := range cases {
		_, err := New(bundle.Bundle{}, bundle.Credentials{Clients: clients})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), canary) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestRootCAs(t *testing.T) {
	rt, err := New(bundle.Bundle{}, bundle.Credentials{})
	check(t, err)
	if rt.RootCAs() != nil {
		t.Error("without a bundle the system's roots are not used")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check(t, err)
	certificate, err := x509.ParseCertificate(der)
	check(t, err)
	var b bundle.Bundle
	b.Pool.Provider.CABundle = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	rt, err = New(b, bundle.Credentials{})
	check(t, err)
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: rt.RootCAs()}); err != nil {
		t.Errorf("a certificate of the bundle is not trusted: %v", err)
	}
	b.Pool.Provider.CABundle = "no certificate"
	if _, err := New(b, bundle.Credentials{}); err == nil || !strings.Contains(err.Error(), "spec.provider.caBundle") {
		t.Errorf("error %v", err)
	}
}

func TestLoadBundle(t *testing.T) {
	files := bundleFiles(t, 7, "a", "b")
	rt, err := Load(folder(t, files))
	check(t, err)
	if rt.Hash != rt.Bundle.Hash+"."+rt.Credentials.Hash || rt.Deadlines.FirstEvent != 2*time.Minute || len(rt.Warnings) != 0 {
		t.Errorf("loaded %q, %+v, %v", rt.Hash, rt.Deadlines, rt.Warnings)
	}
	again, err := Load(newVolume(t, files).dir)
	check(t, err)
	if again.Hash != rt.Hash {
		t.Error("a volume and a folder with the same files differ")
	}
	// What else lies there is not looked at.
	files["notes.txt"], files["other.yaml"], files[".hidden.yaml"] = "x", "\t", "\t"
	_, err = Load(folder(t, files))
	check(t, err)
}

func TestLoadWarnsOfAccountsWithoutCredential(t *testing.T) {
	files := bundleFiles(t, 1, "a", "b")
	files[bundle.CredentialsFileName] = bundleFiles(t, 1, "a")[bundle.CredentialsFileName]
	rt, err := Load(folder(t, files))
	check(t, err)
	if len(rt.Warnings) != 1 || !strings.Contains(rt.Warnings[0], "account b") {
		t.Errorf("warnings %q", rt.Warnings)
	}
}

func TestB60_LoadRejectsWithoutQuotingSecrets(t *testing.T) {
	good := bundleFiles(t, 7, "a")
	skewed := maps.Clone(good)
	skewed[bundle.FileName] = with(t, good[bundle.FileName], "contractVersion", 99)
	noCredentials := map[string]string{bundle.FileName: good[bundle.FileName]}
	wrongType := maps.Clone(good)
	wrongType[bundle.CredentialsFileName] = with(t, good[bundle.CredentialsFileName], "accounts", canary)
	half := maps.Clone(good)
	half[bundle.CredentialsFileName] = half[bundle.CredentialsFileName][:60] + canary
	badClient := maps.Clone(good)
	badClient[bundle.CredentialsFileName] = with(t, good[bundle.CredentialsFileName], "clients", map[string]string{"bob": canary})
	noJSON := maps.Clone(good)
	noJSON[bundle.FileName] = "<html>"
	cases := []struct {
		name, reason, want string
		files              map[string]string
		generation         int64
	}{
		{"another contract version", ReasonVersionSkew, "contractVersion 99", skewed, 7},
		{"no credentials", ReasonInvalid, "credentials.json is missing", noCredentials, 7},
		{"credentials of a wrong type", ReasonInvalid, "credentials.json: not a valid", wrongType, 7},
		{"half a document", ReasonInvalid, "credentials.json: not a valid", half, 7},
		{"a key instead of its digest", ReasonInvalid, "clients[bob]: not a SHA-256", badClient, 7},
		{"no JSON", ReasonInvalid, "bundle.json", noJSON, 0},
		{"an empty folder", ReasonInvalid, "holds neither", nil, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load(folder(t, c.files))
			var r *Rejected
			if !errors.As(err, &r) {
				t.Fatalf("error %v is no *Rejected", err)
			}
			if r.Reason != c.reason || r.Generation != c.generation || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, generation %d: %v; want %s, %d, %q", r.Reason, r.Generation, err, c.reason, c.generation, c.want)
			}
			if c.generation != 0 && r.Hash == "" {
				t.Error("the hash of the refused bundle is not told")
			}
			if strings.Contains(err.Error(), canary) {
				t.Errorf("the error quotes a secret: %v", err)
			}
		})
	}
}

func TestLoadUnreadable(t *testing.T) {
	var r *Rejected
	if _, err := Load(filepath.Join(t.TempDir(), "missing")); !errors.As(err, &r) || r.Reason != ReasonUnreadable {
		t.Errorf("missing folder: %v", err)
	}
	dir := folder(t, bundleFiles(t, 1, "a"))
	check(t, os.Truncate(filepath.Join(dir, bundle.FileName), maxFileBytes+1))
	if _, err := Load(dir); !errors.As(err, &r) || r.Reason != ReasonUnreadable || !strings.Contains(err.Error(), bundle.FileName) {
		t.Errorf("huge file: %v", err)
	}
	dir = t.TempDir()
	check(t, os.Symlink("nowhere", filepath.Join(dir, "a.yaml")))
	if _, err := Load(dir); !errors.As(err, &r) || r.Reason != ReasonUnreadable || !strings.Contains(err.Error(), "a.yaml") {
		t.Errorf("dangling link: %v", err)
	}
}
