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
		reason := map[int]string{404: "NotFound", 422: "Invalid", 403: "Forbidden"}[code]
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

func TestSinkWritesTheStatusAlone(t *testing.T) {
	s := &standIn{podUID: "pod-1", getCode: 200, putCode: 200}
	sink := sinkTo(t, s)
	if err := sink.Patch(t.Context(), statusOf(snapshot())); err != nil {
		t.Fatal(err)
	}
	want := "PATCH /apis/causeway.dev/v1alpha1/namespaces/n/bridgereplicas/p/status"
	if got := strings.Join(s.requests, ","); got != want {
		t.Errorf("requests %s, want %s", got, want)
	}
	var body []struct{ Op, Path string }
	if err := json.Unmarshal(s.body, &body); err != nil {
		t.Fatal(err)
	}
	if len(body) != 2 || body[0].Op != "test" || body[0].Path != "/spec/podUID" || body[1].Path != "/status" {
		t.Errorf("patch %s", s.body)
	}
}

func TestSinkFaults(t *testing.T) {
	cases := []struct {
		name   string
		server standIn
		want   error // nil = any other error
	}{
		{"no object yet", standIn{putCode: 404}, ErrNotYet},
		{"another pod's object", standIn{podUID: "pod-0", getCode: 200, putCode: 422}, ErrForeignPod},
		{"a status that the schema refuses", standIn{podUID: "pod-1", getCode: 200, putCode: 422}, nil},
		{"refused, and no right to read why", standIn{getCode: 403, putCode: 422}, nil},
		{"no right to write", standIn{putCode: 403}, nil},
		{"a server in trouble", standIn{putCode: 500}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := sinkTo(t, &c.server).Patch(t.Context(), v1alpha1.BridgeReplicaStatus{})
			isKnown := errors.Is(err, ErrNotYet) || errors.Is(err, ErrForeignPod)
			if err == nil || !errors.Is(err, c.want) && c.want != nil || c.want == nil && isKnown {
				t.Errorf("error %v, want %v", err, c.want)
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
