// Command causeway-operator runs the controllers of Causeway.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubeconfigs of cloud providers
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/causeway-dev/causeway/api/version"
	"github.com/causeway-dev/causeway/controllers"
	"github.com/causeway-dev/causeway/controllers/credential"
	"github.com/causeway-dev/causeway/controllers/devicelogin"
)

// options are the flags.
type options struct {
	namespaces     string
	proxyImage     string
	leaderElect    bool
	leaderLease    string
	metricsAddress string
	healthAddress  string
	logLevel       slog.Level
	version        bool
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "login" {
		login(os.Args[2:])
		return
	}
	o := parse(flag.CommandLine, os.Args[1:])
	if o.version {
		_, _ = fmt.Fprintln(os.Stdout, version.Version)
		return
	}
	logger := logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: o.logLevel}))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	if err := run(ctrl.SetupSignalHandler(), o); err != nil {
		logger.Error(err, "Operator ended")
		os.Exit(1)
	}
}

// login lets a person log an account in; it needs no cluster role but that person's.
func login(args []string) {
	err := devicelogin.Command(ctrl.SetupSignalHandler(), args, os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		_, _ = fmt.Fprintln(os.Stderr, "causeway-operator login:", err)
		os.Exit(1)
	}
}

func parse(flags *flag.FlagSet, args []string) options {
	var o options
	flags.StringVar(&o.namespaces, "namespaces", "", "comma-separated namespaces to work in; empty means all")
	flags.StringVar(&o.proxyImage, "proxy-image", "", "image of proxies whose BridgePolicy names none (required)")
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "let one of several operators work and the others wait")
	flags.StringVar(&o.leaderLease, "leader-election-namespace", "", "namespace of the Lease; empty means the operator's own")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "address of /metrics; 0 turns it off")
	flags.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 turns it off")
	flags.BoolVar(&o.version, "version", false, "print the version and exit")
	flags.TextVar(&o.logLevel, "log-level", slog.LevelInfo, "least level to log: DEBUG, INFO, WARN or ERROR")
	_ = flags.Parse(args) // flag.CommandLine exits by itself
	return o
}

func run(ctx context.Context, o options) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the cluster: %w", err)
	}
	config.UserAgent = "causeway-operator/" + version.Version
	scheme, err := controllers.NewScheme()
	if err != nil {
		return fmt.Errorf("registering types: %w", err)
	}
	namespaces := split(o.namespaces)
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Cache: controllers.CacheOptions(namespaces),
		Metrics:                       metricsserver.Options{BindAddress: o.metricsAddress},
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              leaseName(namespaces),
		LeaderElectionNamespace:       o.leaderLease,
		LeaderElectionReleaseOnCancel: true, // the process ends right after
	})
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	health, err := controllers.Listen(ctx, o.healthAddress)
	if err != nil {
		return err
	}
	logins := credential.NewKeeper()
	if err := controllers.Setup(mgr, controllers.Options{ProxyImage: o.proxyImage, Health: health, Logins: logins}); err != nil {
		return err
	}
	ctrl.Log.Info("Starting operator", "version", version.Version, "namespaces", namespaces)
	return errors.Join(mgr.Start(ctx), finish(ctx, logins))
}

// finish stores the tokens that were obtained and are not stored yet. The manager
// waits for nothing when it has lost its Lease, and a token that is lost costs
// somebody a new login.
func finish(ctx context.Context, logins *credential.Keeper) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), credential.ExitPatience)
	defer cancel()
	return logins.Wait(ctx)
}

func split(list string) []string {
	var out []string
	for _, part := range strings.Split(list, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// leaseName differs for operators that work in different namespaces, so that
// they do not keep each other waiting.
func leaseName(namespaces []string) string {
	if len(namespaces) == 0 {
		return "causeway-operator"
	}
	sum := sha256.Sum256([]byte(strings.Join(namespaces, ",")))
	return "causeway-operator-" + hex.EncodeToString(sum[:])[:8]
}
