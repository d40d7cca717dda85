package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/causeway-dev/causeway/proxy"
)

// replicaEnv makes a test's own binary a replica: its value is the replica's
// settings.
const replicaEnv = "CAUSEWAY_TEST_REPLICA"

// settings of one replica.
type settings struct {
	Pod, Dir, Listen, Ops, Peer string
	// Members is a file with the peer addresses of the ready replicas by pod.
	Members string
}

// ServeIfReplica is the first thing that TestMain calls. In a process that Start
// has started it serves until SIGTERM and never returns; in any other it does
// nothing.
func ServeIfReplica() {
	raw := os.Getenv(replicaEnv)
	if raw == "" {
		return
	}
	if err := serve(raw); err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(raw string) error {
	var s settings
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return proxy.Run(ctx, proxy.Options{
		ConfigDir: s.Dir, Listen: s.Listen, OpsListen: s.Ops, PeerListen: s.Peer,
		Logger: slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Getenv: func(string) string { return "" },
		Replicas: &proxy.Replicas{Pod: s.Pod, Follow: func(ctx context.Context, _ string, changed func(map[string]string)) error {
			return followFile(ctx, s.Members, changed)
		}},
	})
}

// followFile tells of the members in a file whenever they change.
func followFile(ctx context.Context, path string, changed func(map[string]string)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last := map[string]string{}
	for {
		raw, err := os.ReadFile(path)
		now := map[string]string{}
		if err == nil && json.Unmarshal(raw, &now) == nil && !maps.Equal(now, last) {
			last = now
			changed(maps.Clone(now))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
