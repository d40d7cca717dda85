package report

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/test/apiserver"
)

// replica does with a BridgeReplica what the operator does.
type replica struct {
	t      *testing.T
	client rest.Interface
	pod    Pod
}

func (r replica) create() {
	r.t.Helper()
	object := &v1alpha1.BridgeReplica{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindBridgeReplica},
		ObjectMeta: metav1.ObjectMeta{Name: r.pod.Name, Namespace: r.pod.Namespace},
		Spec:       v1alpha1.BridgeReplicaSpec{Policy: "chat", Slot: v1alpha1.SlotBlue, PodUID: r.pod.UID},
	}
	err := r.client.Post().Namespace(r.pod.Namespace).Resource(resource).Body(object).Do(r.t.Context()).Error()
	if err != nil {
		r.t.Fatalf("creating: %v", err)
	}
}

func (r replica) read() *v1alpha1.BridgeReplica {
	r.t.Helper()
	var object v1alpha1.BridgeReplica
	if err := r.client.Get().Namespace(r.pod.Namespace).Resource(resource).Name(r.pod.Name).Do(r.t.Context()).Into(&object); err != nil {
		r.t.Fatalf("reading: %v", err)
	}
	return &object
}

func (r replica) remove() {
	r.t.Helper()
	if err := r.client.Delete().Namespace(r.pod.Namespace).Resource(resource).Name(r.pod.Name).Do(r.t.Context()).Error(); err != nil {
		r.t.Fatalf("deleting: %v", err)
	}
}

func TestSinkWithARealAPIServer(t *testing.T) {
	config := apiserver.Start(t, filepath.Join("..", "..", "..", "config", "crd", "bases"))
	pod := Pod{Name: "chat-blue-abc", Namespace: "default", UID: "0f0f"}
	sink, err := NewAPISink(config, pod)
	if err != nil {
		t.Fatal(err)
	}
	r := replica{t: t, client: sink.client, pod: pod}
	if err := sink.Patch(t.Context(), statusOf(snapshot())); !errors.Is(err, ErrNotYet) {
		t.Fatalf("before the object exists: %v", err)
	}
	r.create()
	full := statusOf(snapshot(func(s *Snapshot) {
		s.Config.Rejected, s.Epoch, s.Sessions.OldestTurn = "VersionSkew", 3, time.Hour
		s.Accounts = append(s.Accounts, Account{Name: "b", State: "CoolingDown", Reason: "RateLimited", Until: start})
		s.Accounts[1].Since, s.Accounts[1].NextProbe = start, start
		for i := range 6 {
			window := Window{Name: fmt.Sprintf("Window%d", i), Length: time.Hour, UsedPercent: 99.9, ResetsAt: start}
			s.Accounts[1].Usage = append(s.Accounts[1].Usage, window)
		}
		for i := range 20 {
			s.Routes = append(s.Routes, Route{Key: fmt.Sprintf("%s/%d", strings.Repeat("h", 253), i), State: "Open", OpenUntil: start,
				Openings: 3, Reason: "connect"})
		}
		for _, l := range []string{"HTTP", "WebSocket", "Compact", "Media", "Background"} {
			s.Lanes = append(s.Lanes, Lane{Lane: l, Limit: len(l) - 4})
		}
		for i := range 70 { // more than the schema takes
			s.Accounts = append(s.Accounts, Account{Name: "x" + string(rune('A'+i)), State: "Unknown"})
		}
	}))
	full.ReportSequence = 1
	if err := sink.Patch(t.Context(), full); err != nil {
		t.Fatalf("a full report: %v", err)
	}
	got := r.read()
	if diff := cmp.Diff(full, got.Status); diff != "" || got.Spec.PodUID != pod.UID {
		t.Errorf("stored status differs: %s", diff)
	}
	// What is no longer said goes.
	small := statusOf(snapshot(func(s *Snapshot) { s.NumbersOmitted = true }))
	if err := sink.Patch(t.Context(), small); err != nil {
		t.Fatalf("a small report: %v", err)
	}
	if diff := cmp.Diff(small, r.read().Status); diff != "" {
		t.Errorf("stored status differs: %s", diff)
	}
	version := r.read().ResourceVersion
	if err := sink.Patch(t.Context(), small); err != nil || r.read().ResourceVersion != version {
		t.Errorf("the same report again is a write: %v", err)
	}
	wrong := small
	wrong.Role = "Idle"
	if err := sink.Patch(t.Context(), wrong); err == nil || errors.Is(err, ErrForeignPod) || errors.Is(err, ErrNotYet) {
		t.Errorf("a status out of the schema: %v", err)
	}
	// A pod of the same name that came later is not written to.
	r.remove()
	r.pod.UID = "another"
	r.create()
	if err := sink.Patch(t.Context(), small); !errors.Is(err, ErrForeignPod) {
		t.Errorf("another pod's object: %v", err)
	}
	if status := r.read().Status; !cmp.Equal(status, v1alpha1.BridgeReplicaStatus{}) {
		t.Errorf("another pod's status: %+v", status)
	}
}
