package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/proxy/internal/kube"
)

const (
	resource = "bridgereplicas"
	// fieldManager owns the status of a BridgeReplica.
	fieldManager = "causeway-proxy"
	// A pod may use this much of the API server; see the rates in pace.go.
	clientQPS   = 1
	clientBurst = 5
)

// Names of the environment variables that say which pod this is; the operator
// sets them from the downward API.
const (
	EnvPodName      = "POD_NAME"
	EnvPodNamespace = "POD_NAMESPACE"
	EnvPodUID       = "POD_UID"
)

// ErrForeignPod says that the BridgeReplica of our name was made for another pod.
var ErrForeignPod = errors.New("spec.podUID of the BridgeReplica is not the UID of this pod")

// Pod identifies the pod that reports.
type Pod struct{ Name, Namespace, UID string }

// InCluster finds out whether this process runs in a pod that may report: the
// three variables are set and the pod has a service account. getenv is os.Getenv.
func InCluster(getenv func(string) string) (Pod, *rest.Config, bool) {
	pod := Pod{Name: getenv(EnvPodName), Namespace: getenv(EnvPodNamespace), UID: getenv(EnvPodUID)}
	if pod.Name == "" || pod.Namespace == "" || pod.UID == "" {
		return Pod{}, nil, false
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return Pod{}, nil, false
	}
	return pod, config, true
}

// APISink writes the status of one BridgeReplica. It creates nothing.
type APISink struct {
	client rest.Interface
	pod    Pod
}

// NewAPISink makes a client with its own, low rate limit.
func NewAPISink(config *rest.Config, pod Pod) (*APISink, error) {
	c := rest.CopyConfig(config)
	c.QPS, c.Burst, c.RateLimiter = clientQPS, clientBurst, nil
	client, _, err := kube.Client(c, v1alpha1.GroupVersion, v1alpha1.AddToScheme)
	if err != nil {
		return nil, fmt.Errorf("making a client for reports: %w", err)
	}
	return &APISink{client: client, pod: pod}, nil
}

// Patch writes the whole status. Errors wrap ErrNotYet or ErrForeignPod where
// that is the cause.
func (s *APISink) Patch(ctx context.Context, status v1alpha1.BridgeReplicaStatus) error {
	// A JSON patch, because only its test makes the API server itself refuse an
	// object that was made for another pod: a status apply ignores metadata.uid.
	body, err := json.Marshal([]operation{
		{Op: "test", Path: "/spec/podUID", Value: s.pod.UID},
		{Op: "add", Path: "/status", Value: status}, // replaces what is there
	})
	if err != nil {
		return fmt.Errorf("encoding report: %w", err)
	}
	err = s.client.Patch(types.JSONPatchType).Namespace(s.pod.Namespace).Resource(resource).Name(s.pod.Name).SubResource("status").
		Param("fieldManager", fieldManager).Body(body).Do(ctx).Error()
	switch {
	case apierrors.IsNotFound(err):
		err = ErrNotYet
	case apierrors.IsInvalid(err) && s.isForeign(ctx):
		err = ErrForeignPod
	}
	if err != nil {
		return fmt.Errorf("writing status of BridgeReplica %s/%s: %w", s.pod.Namespace, s.pod.Name, err)
	}
	return nil
}

// isForeign tells a failed test from a status that the schema refuses; the API
// server answers both with the same code.
func (s *APISink) isForeign(ctx context.Context) bool {
	var replica v1alpha1.BridgeReplica
	err := s.client.Get().Namespace(s.pod.Namespace).Resource(resource).Name(s.pod.Name).Do(ctx).Into(&replica)
	return err == nil && replica.Spec.PodUID != s.pod.UID
}

// operation is one step of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}
