// Package observe reads what a plan is made from. It decides nothing.
package observe

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxSecrets bounds how many Secrets are remembered. One is worth a few
// kilobytes; a full memory is emptied and fills again.
const maxSecrets = 4096

// Secrets reads Secrets by name. The watch on metadata tells whether one
// exists and in which version; the content is read from the API server once
// per version. So no Secret that nobody refers to ever enters this process. It
// is safe for concurrent use.
type Secrets struct {
	cache client.Reader
	live  client.Reader

	mu   sync.Mutex // guards data
	data map[types.NamespacedName]secretData
}

type secretData struct {
	uid             types.UID
	resourceVersion string
	values          map[string][]byte
}

// NewSecrets returns a reader. cache must hold Secrets as metadata.
func NewSecrets(cache, live client.Reader) *Secrets {
	return &Secrets{cache: cache, live: live, data: map[types.NamespacedName]secretData{}}
}

// Read returns the content of each named Secret; those that do not exist have
// no entry. Callers must not change the values.
func (s *Secrets) Read(ctx context.Context, namespace string, names []string) (map[string]map[string][]byte, error) {
	found := make(map[string]map[string][]byte, len(names))
	for _, name := range names {
		read, ok, err := s.one(ctx, types.NamespacedName{Namespace: namespace, Name: name})
		if err != nil {
			return nil, fmt.Errorf("reading Secret %s: %w", name, err)
		}
		if ok {
			found[name] = read.values
		}
	}
	return found, nil
}

// Own returns the content of a Secret that the operator itself writes; nil when
// there is none. The cache may not have it yet right after it was written, so
// that its absence is asked of the API server.
func (s *Secrets) Own(ctx context.Context, key types.NamespacedName) (values map[string][]byte, version string, err error) {
	read, ok, err := s.one(ctx, key)
	if err == nil && !ok {
		var secret corev1.Secret
		err = client.IgnoreNotFound(s.live.Get(ctx, key, &secret))
		read = secretData{secret.UID, secret.ResourceVersion, secret.Data}
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading Secret %s: %w", key.Name, err)
	}
	return read.values, read.resourceVersion, nil
}

func (s *Secrets) one(ctx context.Context, key types.NamespacedName) (secretData, bool, error) {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := s.cache.Get(ctx, key, meta); err != nil {
		if apierrors.IsNotFound(err) {
			s.drop(key)
			return secretData{}, false, nil
		}
		return secretData{}, false, err
	}
	if known, ok := s.known(key); ok && known.uid == meta.UID && known.resourceVersion == meta.ResourceVersion {
		return known, true, nil
	}
	var secret corev1.Secret
	if err := s.live.Get(ctx, key, &secret); err != nil {
		return secretData{}, false, client.IgnoreNotFound(err)
	}
	read := secretData{secret.UID, secret.ResourceVersion, secret.Data}
	s.store(key, read)
	return read, true, nil
}

func (s *Secrets) known(key types.NamespacedName) (secretData, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.data[key]
	return d, ok
}

func (s *Secrets) store(key types.NamespacedName, d secretData) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.data) >= maxSecrets {
		clear(s.data)
	}
	s.data[key] = d
}

func (s *Secrets) drop(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.data, key)
}
