package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/causeway-dev/causeway/api/v1alpha1"
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

// APISink writes the status of one BridgeReplica. It creates nothing. It is not
// safe for concurrent use.
type APISink struct {
	client rest.Interface
	pod    Pod
	// uid is that of the object whose podUID was checked; empty = not yet.
	uid types.UID
}

// NewAPISink makes a client with its own, low rate limit.
func NewAPISink(config *rest.Config, pod Pod) (*APISink, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering types: %w", err)
	}
	c := rest.CopyConfig(config)
	c.APIPath = "/apis"
	c.GroupVersion = &v1alpha1.GroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.QPS, c.Burst, c.RateLimiter = clientQPS, clientBurst, nil
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("making a client for reports: %w", err)
	}
	return &APISink{client: client, pod: pod}, nil
}

// Patch applies the status. Errors wrap ErrNotYet or ErrForeignPod where that is
// the cause.
func (s *APISink) Patch(ctx context.Context, status v1alpha1.BridgeReplicaStatus) error {
	if s.uid == "" {
		if err := s.find(ctx); err != nil {
			return err
		}
	}
	body, err := json.Marshal(applied{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindBridgeReplica},
		// The UID makes the API server refuse an object that took the name since.
		Metadata: metadata{Name: s.pod.Name, Namespace: s.pod.Namespace, UID: s.uid},
		Status:   status,
	})
	if err != nil {
		return fmt.Errorf("encoding report: %w", err)
	}
	err = s.client.Patch(types.ApplyPatchType).Namespace(s.pod.Namespace).Resource(resource).Name(s.pod.Name).SubResource("status").
		Param("fieldManager", fieldManager).Param("force", "true").Body(body).Do(ctx).Error()
	switch {
	case apierrors.IsNotFound(err):
		s.uid = ""
		return fmt.Errorf("writing report: %w", ErrNotYet)
	case apierrors.IsConflict(err):
		s.uid = "" // look again
		return fmt.Errorf("writing report: %w", err)
	case err != nil:
		return fmt.Errorf("writing report: %w", err)
	}
	return nil
}

// find checks that the object is ours.
func (s *APISink) find(ctx context.Context) error {
	var replica v1alpha1.BridgeReplica
	err := s.client.Get().Namespace(s.pod.Namespace).Resource(resource).Name(s.pod.Name).Do(ctx).Into(&replica)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("looking for %s/%s: %w", s.pod.Namespace, s.pod.Name, ErrNotYet)
	case err != nil:
		return fmt.Errorf("looking for %s/%s: %w", s.pod.Namespace, s.pod.Name, err)
	case replica.Spec.PodUID != s.pod.UID:
		return fmt.Errorf("%s/%s: %w", s.pod.Namespace, s.pod.Name, ErrForeignPod)
	}
	s.uid = replica.UID
	return nil
}

// applied is the part of a BridgeReplica that we own: a whole object would
// claim its empty spec too.
type applied struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metadata                     `json:"metadata"`
	Status          v1alpha1.BridgeReplicaStatus `json:"status"`
}

type metadata struct {
	Name      string    `json:"name"`
	Namespace string    `json:"namespace"`
	UID       types.UID `json:"uid"`
}
