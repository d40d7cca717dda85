package clients

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// The lock file names versions and digests of packages, and no registry: npm
// takes them from the one it is configured for.
const (
	manifestFile = "package.json"
	lockFile     = "package-lock.json"
)

// nodeClients is the folder of the installed npm packages. It fails the test,
// and says how to help, if they cannot be had: a suite that skips proves nothing.
func nodeClients(t *testing.T) string {
	t.Helper()
	dir, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// installed is the cache folder of this lock file, filled once: after the first
// run the suite needs no network.
var installed = sync.OnceValues(func() (string, error) {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%s is missing: the real clients need Node.js 20 or newer with npm (https://nodejs.org, or your system's packages)", tool)
		}
	}
	lock, err := os.ReadFile(lockFile)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(lock)
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "clients-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	return dir, install(cache, dir)
})

func cacheDir() (string, error) {
	if dir := os.Getenv("CAUSEWAY_CACHE"); dir != "" {
		return dir, nil
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "causeway"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder: set HOME or CAUSEWAY_CACHE: %w", err)
	}
	return filepath.Join(home, ".cache", "causeway"), nil
}

// install runs npm in a folder beside dir and moves it there when it is whole.
func install(cache, dir string) error {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	half, err := os.MkdirTemp(cache, ".clients-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(half)
	for _, name := range []string{manifestFile, lockFile} {
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(half, name), content, 0o600); err != nil {
			return err
		}
	}
	npm := exec.CommandContext(context.Background(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
	npm.Dir = half
	if out, err := npm.CombinedOutput(); err != nil {
		return fmt.Errorf("the clients of test/clients/%s cannot be installed: %w\n%s\n"+
			"This needs the network once and about 500 MB below %s (CAUSEWAY_CACHE points elsewhere); npm uses the registry of `npm config get registry`. "+
			"After that it works without", manifestFile, err, out, cache)
	}
	err = os.Rename(half, dir)
	if _, there := os.Stat(dir); there == nil {
		return nil // another run was faster
	}
	return err
}

// goClient is the program that uses the SDK for Go. Its module is its own, so
// that the SDK is no dependency of Causeway.
func goClient(t *testing.T) string {
	t.Helper()
	path, err := goClientBuilt()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var goClientBuilt = sync.OnceValues(func() (string, error) {
	path := filepath.Join(built, "gosdk")
	build := exec.CommandContext(context.Background(), "go", "build", "-o", path, ".")
	build.Dir = "gosdk"
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the client in test/clients/gosdk does not build: %w\n%s\n"+
			"Its modules are fetched once, through GOPROXY; after that it works without network", err, out)
	}
	return path, nil
})

// codexBinary is the native program that the npm package starts, without the
// script in between.
func codexBinary(t *testing.T) string {
	t.Helper()
	dir := nodeClients(t)
	found, err := filepath.Glob(filepath.Join(dir, "node_modules", "@openai", "codex-*", "vendor", "*", "bin", "codex"))
	if err == nil && len(found) == 0 {
		err = errors.New("npm installed no Codex for this system: it comes for Linux, macOS and Windows on x64 and arm64")
	}
	if err != nil {
		t.Fatal(err)
	}
	return found[0]
}
