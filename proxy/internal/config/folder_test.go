package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/causeway-dev/causeway/api/bundle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// canary stands for a secret: it may occur in no error and no log.
const canary = "sk-canary-4711-SECRET"

// volume is a folder as the kubelet keeps it: files are links through ..data,
// and all of them change at once when that link does.
type volume struct {
	t       *testing.T
	dir     string
	version int
}

func newVolume(t *testing.T, files map[string]string) *volume {
	t.Helper()
	v := &volume{t: t, dir: t.TempDir()}
	v.swap(files)
	return v
}

func (v *volume) swap(files map[string]string) {
	v.t.Helper()
	v.version++
	name := fmt.Sprintf("..2026_03_01_%d", v.version)
	data := filepath.Join(v.dir, name)
	check(v.t, os.Mkdir(data, 0o700))
	for file, text := range files {
		check(v.t, os.WriteFile(filepath.Join(data, file), []byte(text), 0o600))
		link := filepath.Join(v.dir, file)
		if _, err := os.Lstat(link); err != nil {
			check(v.t, os.Symlink(filepath.Join(dataLink, file), link))
		}
	}
	old, _ := os.Readlink(filepath.Join(v.dir, dataLink))
	check(v.t, os.Symlink(name, filepath.Join(v.dir, "..data_tmp")))
	check(v.t, os.Rename(filepath.Join(v.dir, "..data_tmp"), filepath.Join(v.dir, dataLink)))
	if old != "" {
		check(v.t, os.RemoveAll(filepath.Join(v.dir, old)))
	}
}

// folder writes plain files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bundleFiles are both documents of a pool with the accounts given; each has a
// key that begins with the canary.
func bundleFiles(t *testing.T, generation int64, accounts ...string) map[string]string {
	t.Helper()
	b := bundle.Bundle{Generation: generation, Name: "chat", Clients: bundle.Clients{Mode: bundle.ClientsRequired}}
	c := bundle.Credentials{Accounts: map[string]bundle.Credential{}, Clients: map[string]string{"alice": bundle.KeyDigest("cwk-alice")}}
	for _, a := range accounts {
		b.Pool.Accounts = append(b.Pool.Accounts, bundle.Account{Name: a, Kind: bundle.KindAPIKey, State: bundle.AccountEnabled})
		c.Accounts[a] = bundle.Credential{APIKey: canary + a}
	}
	b.Circuit.Deadlines.FirstEventSeconds = 120
	rawBundle, err := b.Seal().Encode()
	check(t, err)
	rawCredentials, err := c.Seal().Encode()
	check(t, err)
	return map[string]string{bundle.FileName: string(rawBundle), bundle.CredentialsFileName: string(rawCredentials)}
}

// with changes one field of a JSON document.
func with(t *testing.T, text, field string, value any) string {
	t.Helper()
	var document map[string]any
	check(t, json.Unmarshal([]byte(text), &document))
	document[field] = value
	raw, err := json.Marshal(document)
	check(t, err)
	return string(raw)
}
