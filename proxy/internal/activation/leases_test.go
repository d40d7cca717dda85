package activation

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/test/apiserver"
)

func TestLeasesOfARealAPIServer(t *testing.T) {
	config := apiserver.Start(t, "")
	api, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	leases, closeIdle, err := NewLeases(Source{Config: config, Namespace: "default", Name: "chat-activation", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeIdle)
	heard := make(chan Sight, 100)
	ctx, stop := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		leases.Watch(ctx, func(s Sight) { heard <- s })
	}()
	t.Cleanup(func() { stop(); <-watched })

	if _, err := leases.Read(t.Context()); !errors.Is(err, ErrNoLease) || !strings.Contains(err.Error(), "default/chat-activation") {
		t.Fatalf("without a Lease: %v", err)
	}
	made := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "chat-activation",
		Labels: map[string]string{"kept": "yes"}, Annotations: map[string]string{v1alpha1.AnnotationNextHolder: "blue", v1alpha1.AnnotationEpoch: "3"}}}
	if err := api.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	free, err := leases.Read(t.Context())
	if err != nil || free.Next != "blue" || free.Epoch != 3 || free.Holder != (bundle.Holder{}) || free.Version == "" {
		t.Fatalf("%+v %v", free, err)
	}
	me := captain("blue", "n")
	held, err := leases.Write(t.Context(), After(Acquire, me, Knowledge{Sight: free}, time.Now()))
	if err != nil || held.Holder != me || held.Epoch != 4 || held.Next != "blue" || held.Renewed == "" || held.Version == free.Version {
		t.Fatalf("%+v %v", held, err)
	}
	if _, err := leases.Write(t.Context(), After(Acquire, captain("green", "n"), Knowledge{Sight: free}, time.Now())); !errors.Is(err, ErrConflict) {
		t.Fatalf("two captains: %v", err)
	}
	expectHeard(t, heard, held)
	slot, err := leases.Write(t.Context(), After(Resign, me, Knowledge{Sight: held}, time.Now()))
	if err != nil || slot.Holder != (bundle.Holder{Slot: "blue"}) || slot.Epoch != 4 {
		t.Fatalf("%+v %v", slot, err)
	}
	released, err := leases.Write(t.Context(), After(Release, me, Knowledge{Sight: slot}, time.Now()))
	if err != nil || released.Holder != (bundle.Holder{}) || released.Epoch != 4 {
		t.Fatalf("%+v %v", released, err)
	}
	expectHeard(t, heard, released)
	var stored coordinationv1.Lease
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(made), &stored); err != nil || stored.Labels["kept"] != "yes" || stored.Spec.HolderIdentity != nil {
		t.Fatalf("what others keep in it is gone: %+v %v", stored, err)
	}
	stranger := "somebody else"
	stored.Spec.HolderIdentity, stored.Annotations[v1alpha1.AnnotationEpoch] = &stranger, "not a number"
	if err := api.Update(t.Context(), &stored); err != nil {
		t.Fatal(err)
	}
	if s, err := leases.Read(t.Context()); err != nil || s.Epoch != 0 || !s.Foreign || s.Holder != (bundle.Holder{}) {
		t.Fatalf("%+v %v", s, err)
	}
}

func expectHeard(t *testing.T, heard <-chan Sight, want Sight) {
	t.Helper()
	for deadline := time.After(30 * time.Second); ; {
		select {
		case s := <-heard:
			if s == want {
				return
			}
		case <-deadline:
			t.Fatalf("the watch never told of %+v", want)
		}
	}
}

func TestLeasesWithoutAWayToAsk(t *testing.T) {
	bad := &rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("none")}}
	if _, _, err := NewLeases(Source{Config: bad, Log: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("no error")
	}
}
