package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"syscall"

	"github.com/causeway-dev/causeway/proxy"
)

// Signals to a proxy that runs in this binary: one begins its CPU profile, the
// other ends it and adds one of the heap.
const (
	beginProfile = syscall.SIGUSR1
	endProfile   = syscall.SIGUSR2
)

// runProxy is the proxy with profiles.
func runProxy(ctx context.Context, args []string) error {
	f := flag.NewFlagSet(roleProxy, flag.ContinueOnError)
	o := proxy.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	f.StringVar(&o.ConfigDir, "config", "", "`folder` of the configuration")
	f.StringVar(&o.Listen, "listen", "", "`address` for clients")
	f.StringVar(&o.OpsListen, "ops-listen", "", "`address` for health")
	to := f.String("profile", "", "start of the profiles' `names`")
	if err := f.Parse(args); err != nil {
		return err
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, beginProfile, endProfile)
	go func() {
		var cpu io.Closer
		for s := range signals {
			var err error
			if s == beginProfile {
				cpu, err = startCPU(*to + ".cpu.pprof")
			} else {
				err = stopProfile(cpu, *to)
			}
			if err != nil {
				o.Logger.Error("Profiling failed", "error", err)
			}
		}
	}()
	return proxy.Run(ctx, o)
}

func startCPU(name string) (io.Closer, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	return f, pprof.StartCPUProfile(f)
}

func stopProfile(cpu io.Closer, name string) error {
	if cpu == nil {
		return nil
	}
	pprof.StopCPUProfile()
	if err := cpu.Close(); err != nil {
		return err
	}
	runtime.GC()
	for _, kind := range []string{"heap", "allocs", "goroutine"} {
		f, err := os.Create(name + "." + kind + ".pprof")
		if err != nil {
			return err
		}
		err = pprof.Lookup(kind).WriteTo(f, 0)
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return fmt.Errorf("writing %s: %w", f.Name(), err)
		}
	}
	return nil
}
