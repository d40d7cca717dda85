// Command causeway-proxy serves coding agents from a pool of OpenAI accounts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/causeway-dev/causeway/api/version"
	"github.com/causeway-dev/causeway/proxy"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// heapGrowth is how far the heap grows between two collections, in percent of
// what is live. Relaying allocates nothing, so that collections are rare and half
// of Go's own 100 costs no CPU that `make bench` can see, and saves a seventh of
// the memory of a live stream.
const heapGrowth = 50

// run returns the exit code: 0 after a graceful stop, 1 if the proxy cannot
// serve, 2 for wrong flags.
func run(args []string, stdout, stderr io.Writer) int {
	var o proxy.Options
	flags := flag.NewFlagSet("causeway-proxy", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.ConfigDir, "config", "", "`folder` with bundle.json and credentials.json, or with manifests (*.yaml)")
	flags.StringVar(&o.Listen, "listen", proxy.DefaultListen, "`address` for clients")
	flags.StringVar(&o.OpsListen, "ops-listen", proxy.DefaultOpsListen, "`address` for health, metrics and version")
	flags.StringVar(&o.PeerListen, "peer-listen", proxy.DefaultPeerListen, "`address` for other replicas, used in a cluster only")
	level := flags.String("log-level", "info", "debug, info, warn or error")
	showVersion := flags.Bool("version", false, "print the version and exit")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		_, _ = fmt.Fprintf(stderr, "causeway-proxy: unexpected argument %q: all settings are flags, see --help\n", flags.Arg(0))
		return 2
	}
	if *showVersion {
		_, _ = fmt.Fprintln(stdout, version.Version)
		return 0
	}
	logger, err := telemetry.NewLogger(stderr, *level)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "causeway-proxy: --log-level:", err)
		return 2
	}
	klog.SetSlogLogger(logger)
	o.Logger = logger
	ctx, hurry := signals()
	o.Hurry = hurry
	if err := proxy.Run(ctx, o); err != nil {
		_, _ = fmt.Fprintln(stderr, "causeway-proxy:", err)
		return 1
	}
	return 0
}

// signals returns a context that ends with the first signal and a channel that
// is closed by the second. A third one ends the process.
func signals() (context.Context, <-chan struct{}) {
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGTERM, os.Interrupt)
	ctx, cancel := context.WithCancel(context.Background())
	hurry := make(chan struct{})
	go func() {
		<-received
		cancel()
		<-received
		close(hurry)
		signal.Stop(received)
	}()
	return ctx, hurry
}
