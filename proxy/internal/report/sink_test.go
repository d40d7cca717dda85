package report

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// standIn answers one BridgeReplica as the API server does, and faults.
type standIn struct {
	podUID   string
	getCode  int
	putCode  int
	requests []string
	body     []byte
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	code := s.getCode
	if r.Method == http.MethodPatch {
		code = s.putCode
		s.body, _ = io.ReadAll(r.Body)
	}
	if code != http.StatusOK {
		w.WriteHeader(code)
		reason := map[int]string{404: "NotFound", 409: "Conflict", 403: "Forbidden"}[code]
		_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"`+reason+`","code":`+strconv.Itoa(code)+`}`)
		return
	}
	_, _ = io.WriteString(w, `{"apiVersion":"causeway.dev/v1alpha1","kind":"BridgeReplica","metadata":{"name":"p","namespace":"n","uid":"u1"},`+
		`"spec":{"policy":"b","slot":"blue","podUID":"`+s.podUID+`"}}`)
}

func sinkTo(t *testing.T, s *standIn) *APISink {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	sink, err := NewAPISink(&rest.Config{Host: server.URL}, Pod{Name: "p", Namespace: "n", UID: "pod-1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sink.client.(*rest.RESTClient).Client.CloseIdleConnections)
	return sink
}

func TestSinkAppliesTheStatusAlone(t *testing.T) {
	s := &standIn{podUID: "pod-1", getCode: 200, putCode: 200}
	sink := sinkTo(t, s)
	for range 2 {
		if err := sink.Patch(t.Context(), statusOf(snapshot())); err != nil {
			t.Fatal(err)
		}
	}
	const object = "/apis/causeway.dev/v1alpha1/namespaces/n/bridgereplicas/p"
	want := "GET " + object + ",PATCH " + object + "/status,PATCH " + object + "/status"
	if got := strings.Join(s.requests, ","); got != want {
		t.Errorf("requests %s, want %s", got, want)
	}
	var body map[string]json.RawMessage
	if err := json.Unmarshal(s.body, &body); err != nil {
		t.Fatal(err)
	}
	if body["spec"] != nil || body["status"] == nil || !strings.Contains(string(body["metadata"]), `"uid":"u1"`) {
		t.Errorf("applied %s", s.body)
	}
}

func TestSinkFaults(t *testing.T) {
	cases := []struct {
		name    string
		server  standIn
		want    error // nil = any other error
		patched bool
		again   bool // the next write looks at the object again
	}{
		{"object not created yet", standIn{podUID: "pod-1", getCode: 404, putCode: 200}, ErrNotYet, false, true},
		{"object deleted since", standIn{podUID: "pod-1", getCode: 200, putCode: 404}, ErrNotYet, true, true},
		{"object replaced since", standIn{podUID: "pod-1", getCode: 200, putCode: 409}, nil, true, true},
		{"another pod's object", standIn{podUID: "pod-0", getCode: 200, putCode: 200}, ErrForeignPod, false, true},
		{"no right to read", standIn{podUID: "pod-1", getCode: 403, putCode: 200}, nil, false, true},
		{"no right to write", standIn{podUID: "pod-1", getCode: 200, putCode: 403}, nil, true, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			sink := sinkTo(t, &c.server)
			err := sink.Patch(t.Context(), v1alpha1.BridgeReplicaStatus{})
			if err == nil || c.want != nil && !errors.Is(err, c.want) || c.want == nil && errors.Is(err, ErrNotYet) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if patched := strings.Contains(strings.Join(c.server.requests, ""), "PATCH"); patched != c.patched {
				t.Errorf("patched = %v", patched)
			}
			if (sink.uid == "") != c.again {
				t.Errorf("looks again = %v, want %v", sink.uid == "", c.again)
			}
		})
	}
}

func TestInClusterNeedsAllThreeNames(t *testing.T) {
	for _, missing := range []string{EnvPodName, EnvPodNamespace, EnvPodUID} {
		_, _, ok := InCluster(func(name string) string {
			if name == missing {
				return ""
			}
			return "x"
		})
		if ok {
			t.Errorf("reports without %s", missing)
		}
	}
}
