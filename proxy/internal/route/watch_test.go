package route

import (
	"context"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/test/apiserver"
)

// wire leads to an API server and can be cut.
type wire struct {
	mu       sync.Mutex // guards all below
	cut      bool
	open     map[net.Conn]bool
	listener net.Listener
	target   string
	// refused gets a word when somebody meets the cut.
	refused chan struct{}
}

func newWire(t *testing.T, target string) *wire {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{open: map[net.Conn]bool{}, listener: listener, target: target, refused: make(chan struct{}, 1)}
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() { w.carry(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		w.set(true)
		tasks.Wait()
	})
	return w
}

// set cuts the wire or mends it.
func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	for conn := range w.open {
		if cut {
			_ = conn.Close()
		}
	}
}

func (w *wire) add(conn net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		select {
		case w.refused <- struct{}{}:
		default:
		}
		return false
	}
	w.open[conn] = true
	return true
}

func (w *wire) carry(near net.Conn) {
	defer near.Close()
	far, err := new(net.Dialer).DialContext(context.Background(), "tcp", w.target)
	if err != nil {
		return
	}
	defer far.Close()
	if !w.add(near) || !w.add(far) {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(far, near)
		_ = far.Close()
	}()
	_, _ = io.Copy(near, far)
	_ = near.Close()
	<-done
}

func TestWatchWithARealAPIServer(t *testing.T) {
	config := apiserver.Start(t, "")
	api, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := newWire(t, strings.Trim(strings.TrimPrefix(config.Host, "https:"), "/"))
	wired := rest.CopyConfig(config)
	wired.Host = "https://" + w.listener.Addr().String()
	var log logBuffer
	told := make(chan []Member, 100)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Watch(ctx, Source{Config: wired, Namespace: "default", Service: "chat-blue", Port: 8081,
			Log: slog.New(slog.NewTextHandler(&log, nil))}, func(m []Member) { told <- m })
	}()
	expect := func(what string, want ...string) {
		t.Helper()
		for deadline := time.After(60 * time.Second); ; {
			select {
			case got := <-told:
				var names []string
				for _, m := range got {
					names = append(names, m.Pod)
				}
				if slices.Equal(names, want) {
					return
				}
				t.Logf("%s: %v on the way", what, names)
			case <-deadline:
				t.Fatalf("%s: waited in vain for %v\n%s", what, want, log.String())
			}
		}
	}
	put := func(s *discoveryv1.EndpointSlice) {
		t.Helper()
		s.Namespace = "default"
		if err := api.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	expect("no slice yet")
	one := slice("one", discoveryv1.AddressTypeIPv4, endpoint("a", "10.0.0.1"), endpoint("b", "10.0.0.2", unready))
	put(one)
	expect("a slice", "a")
	foreign := slice("other", discoveryv1.AddressTypeIPv4, endpoint("x", "10.0.0.9"))
	foreign.Labels[discoveryv1.LabelServiceName] = "chat-green"
	put(foreign)
	one.Endpoints[1] = endpoint("b", "10.0.0.2")
	if err := api.Update(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	expect("b is ready", "a", "b")

	w.set(true)
	one.Endpoints = one.Endpoints[1:]
	if err := api.Update(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	put(slice("two", discoveryv1.AddressTypeIPv4, endpoint("c", "10.0.0.3")))
	select { // it has noticed
	case <-w.refused:
	case got := <-told:
		t.Fatalf("without the API server it says %v", got)
	}
	w.set(false)
	expect("after the outage", "b", "c")

	if err := api.Delete(t.Context(), one, &client.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &one.UID}}); err != nil {
		t.Fatal(err)
	}
	expect("a slice less", "c")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestWatchWithoutAWayToAsk(t *testing.T) {
	bad := &rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("none")}}
	if err := Watch(t.Context(), Source{Config: bad, Log: slog.New(slog.DiscardHandler)}, nil); err == nil {
		t.Error("no error")
	}
}

type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
