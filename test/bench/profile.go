package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"sync"
	"syscall"

	"github.com/causeway-dev/causeway/proxy"
)

// Signals to a proxy that runs in this binary: one begins its CPU profile, the
// other ends it and adds one of the heap.
const (
	beginProfile = syscall.SIGUSR1
	endProfile   = syscall.SIGUSR2
)

// memProfileRate is one sample in so many bytes: dense enough to tell what one
// session of a thousand holds.
const memProfileRate = 16 << 10

// runProxy is the proxy with profiles.
func runProxy(ctx context.Context, args []string) error {
	runtime.MemProfileRate = memProfileRate
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
	var profiling sync.WaitGroup
	profiling.Go(func() {
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
	})
	err := proxy.Run(ctx, o)
	signal.Stop(signals)
	close(signals)
	profiling.Wait() // for what was begun before the end
	return err
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
	if err := saveMemory(name + ".memory.json"); err != nil {
		return err
	}
	runtime.GC()
	if err := saveMemory(name + ".memory-after-gc.json"); err != nil {
		return err
	}
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

// saveMemory writes what the runtime's memory is used for, in bytes.
func saveMemory(name string) error {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	text, err := json.MarshalIndent(map[string]any{
		"goroutines": runtime.NumGoroutine(), "heapAlloc": m.HeapAlloc, "heapInuse": m.HeapInuse, "heapObjects": m.HeapObjects, "heapKept": m.HeapIdle - m.HeapReleased,
		"nextGC": m.NextGC, "stackInuse": m.StackInuse, "stackSys": m.StackSys, "gcSys": m.GCSys, "otherSys": m.OtherSys + m.MSpanSys + m.MCacheSys + m.BuckHashSys,
		"collections": m.NumGC, "gcCPUFraction": m.GCCPUFraction,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o600)
}
