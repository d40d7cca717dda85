package observe

import (
	"crypto/rand"
	"encoding/base64"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/causeway-dev/causeway/api/bundle"
)

// freshKeys holds a peer key for each policy whose Secret has none yet. It stays
// the same until it is stored: a plan made of another one each time would never
// come to rest. It is safe for concurrent use.
type freshKeys struct {
	mu   sync.Mutex // guards keys
	keys map[types.NamespacedName]string
}

// of returns the key that is offered to a policy.
func (f *freshKeys) of(policy types.NamespacedName) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if key, ok := f.keys[policy]; ok {
		return key
	}
	var raw [bundle.PeerKeyBytes]byte
	_, _ = rand.Read(raw[:]) // never fails: it ends the process instead
	if f.keys == nil {
		f.keys = map[types.NamespacedName]string{}
	}
	f.keys[policy] = base64.StdEncoding.EncodeToString(raw[:])
	return f.keys[policy]
}

// drop forgets the key: it is stored, or its policy is gone.
func (f *freshKeys) drop(policy types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.keys, policy)
}
