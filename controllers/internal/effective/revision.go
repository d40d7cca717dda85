package effective

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

const (
	// HashVersion names the algorithm behind a revision. When it must change, the
	// slots are stamped anew instead of being replaced.
	HashVersion = "1"
	// envSchema counts changes of the environment that the proxies are given.
	envSchema = 2
	// revisionLength hex digits fit a label and tell revisions of one fleet apart.
	revisionLength = 12
)

// podInputs are what a pod template is made from, and so what a revision is
// made from. Configuration and accounts reach running pods as files and are not
// in it; nor is the version of the operator.
type podInputs struct {
	Image       string             `json:"image"`
	PullPolicy  corev1.PullPolicy  `json:"pullPolicy,omitempty"`
	PullSecrets []string           `json:"pullSecrets,omitempty"`
	Resources   v1alpha1.Resources `json:"resources"`
	Pod         v1alpha1.Pod       `json:"pod"`
	Store       *v1alpha1.Store    `json:"store,omitempty"`
	PreStop     int32              `json:"preStop"`
	PodGrace    int32              `json:"podGrace"`
	RestartedAt string             `json:"restartedAt,omitempty"`
	Env         int                `json:"env"`
}

func revision(f Fleet, store *v1alpha1.Store, restartedAt string) string {
	if store != nil && store.Type == v1alpha1.StoreMemory {
		store = nil // saying the default aloud changes no pod
	}
	raw, err := json.Marshal(podInputs{
		Image: f.Image, PullPolicy: f.PullPolicy, PullSecrets: f.PullSecrets,
		Resources: f.Resources, Pod: f.Pod, Store: store,
		PreStop: f.PreStopSeconds, PodGrace: f.PodGraceSeconds,
		RestartedAt: restartedAt, Env: envSchema,
	})
	if err != nil {
		return "" // API types always marshal: they came from JSON
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])[:revisionLength]
}
