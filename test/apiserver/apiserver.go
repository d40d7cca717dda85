// Package apiserver starts etcd and an API server for tests: one for a test, or one
// for all tests of a package.
package apiserver

import (
	"fmt"
	"os"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// assets names the folder with the binaries.
const assets = "KUBEBUILDER_ASSETS"

// Start runs an API server until the test ends; without binaries the test is
// skipped. crds is the folder with our kinds; empty = it knows none.
func Start(t *testing.T, crds string) *rest.Config {
	t.Helper()
	if os.Getenv(assets) == "" {
		t.Skip(assets + " is not set; make test provides an API server")
	}
	environment := &envtest.Environment{}
	if crds != "" {
		environment.CRDDirectoryPaths, environment.ErrorIfCRDPathMissing = []string{crds}, true
	}
	config, err := environment.Start()
	if err != nil {
		t.Fatalf("starting the API server: %v", err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Errorf("stopping the API server: %v", err)
		}
	})
	return config
}

// Run runs the tests of a package with one API server for all; it returns the exit
// code. prepare gets the way to it, with every right and no limit of requests, before
// the first test; its stop is called after the last.
func Run(m *testing.M, environment *envtest.Environment, prepare func(*rest.Config) (stop func(), err error)) int {
	if os.Getenv(assets) == "" {
		fmt.Fprintln(os.Stderr, assets+" is not set, so there is no API server to test against: run make test, which provides it")
		return 1
	}
	config, err := environment.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the API server:", err)
		return 1
	}
	defer func() {
		if err := environment.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the API server:", err)
		}
	}()
	config.QPS, config.Burst = -1, -1
	stop, err := prepare(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, "preparing the API server:", err)
		return 1
	}
	defer stop()
	return m.Run()
}
