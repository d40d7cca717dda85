package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// settings are the flags.
type settings struct {
	proxy, upstream, ca, serverName string
	namespace, bridge, image        string
	streams                         int
	streamSeconds                   int
	rate                            float64
	sources                         []string
	acts                            []string
	patience, maxAdded              time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "upgrades:", err)
		os.Exit(1)
	}
}

func parse() (settings, error) {
	var s settings
	flag.StringVar(&s.proxy, "proxy", "", "`URL` of the bridge, without a path")
	flag.StringVar(&s.upstream, "upstream", "", "`URL` of the scripted upstream, without a path")
	flag.StringVar(&s.ca, "ca", "", "`file` with the certificate authority of the upstream")
	flag.StringVar(&s.serverName, "server-name", "", "`name` in the upstream's certificate")
	flag.StringVar(&s.namespace, "namespace", "", "`namespace` of the bridge")
	flag.StringVar(&s.bridge, "bridge", "", "`name` of the BridgePolicy")
	flag.StringVar(&s.image, "image", "", "`name` of the proxy's image, without a tag")
	flag.IntVar(&s.streams, "streams", 200, "streams that are open at any time")
	flag.IntVar(&s.streamSeconds, "stream-seconds", 180, "length of a stream, an event each second")
	flag.Float64Var(&s.rate, "rate", 20, "new turns a second")
	sources := flag.String("sources", "", "local `addresses` to call from, with commas between them")
	acts := flag.String("acts", "upgrade", "what to do, in order, with commas between: upgrade, rollback, evict, freeze, "+
		"blocked (upgrade, with an eviction that must be refused), image:TAG, operator:SECONDS and api:SECONDS (away for so long); NxACT repeats")
	flag.DurationVar(&s.maxAdded, "max-added", 3*time.Second, "most that turns may wait longer than usual, p99 of each act but freeze; 0 = it is shown and not judged")
	flag.DurationVar(&s.patience, "patience", 15*time.Minute, "time for one of them")
	flag.Parse()
	for name, value := range map[string]string{"proxy": s.proxy, "upstream": s.upstream, "namespace": s.namespace, "bridge": s.bridge} {
		if value == "" {
			return s, fmt.Errorf("-%s is missing", name)
		}
	}
	if os.Getenv("CAUSEWAY_CLIENT_KEY") == "" {
		return s, errors.New("CAUSEWAY_CLIENT_KEY is not set: it is the key of a client of the bridge")
	}
	s.sources = strings.FieldsFunc(*sources, func(r rune) bool { return r == ',' })
	for act := range strings.SplitSeq(*acts, ",") {
		n, name := 1, act
		if count, rest, repeated := strings.Cut(act, "x"); repeated {
			if _, err := fmt.Sscan(count, &n); err == nil {
				name = rest
			} else {
				n = 1
			}
		}
		for range n {
			s.acts = append(s.acts, name)
		}
	}
	return s, nil
}

func run(ctx context.Context) error {
	s, err := parse()
	if err != nil {
		return err
	}
	up, err := newUpstream(s)
	if err != nil {
		return err
	}
	if err := up.script(ctx, s.streamSeconds); err != nil {
		return err
	}
	b := &bridge{namespace: s.namespace, name: s.bridge, image: s.image}
	l := newLoad(s)
	loading, end := context.WithCancel(ctx)
	finished := make(chan struct{})
	go func() { defer close(finished); l.run(loading) }()
	fmt.Printf("load: %d streams of %d s, %g turns a second\n", s.streams, s.streamSeconds, s.rate)
	if err := pause(ctx, 45*time.Second); err != nil { // what turns take while nothing happens
		end()
		return err
	}
	t := &table{load: l, began: time.Now()}
	t.note("nothing", "", t.began.Add(-15*time.Second), t.began)
	for i, act := range s.acts {
		bounded, cancel := context.WithTimeout(ctx, s.patience)
		began := time.Now()
		what, failed := b.do(bounded, act, i)
		cancel()
		t.note(act, what, began, time.Now())
		if failed != nil {
			err = fmt.Errorf("%s, number %d: %w", act, i+1, failed)
			break
		}
	}
	end()
	<-finished
	dups, ledgerErr := up.duplicates(context.WithoutCancel(ctx))
	t.print(dups)
	return errors.Join(err, ledgerErr, t.verdict(dups))
}

// pause waits, or returns why ctx has ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
