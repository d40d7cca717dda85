package store

import (
	"crypto/x509"
	"fmt"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
)

// Open makes the store of a bridge. It does not connect, so that a proxy starts
// while its Redis is away. roots are the authorities to trust for TLS; nil = those
// of the system. Of c only StorePassword is read.
//
// A store stays what it was opened as, but for its password (SetPassword): a
// process whose addresses or TLS change has to be restarted to use them, which the
// operator does, since spec.store is part of a pod's revision.
func Open(b bundle.Bundle, c bundle.Credentials, roots *x509.CertPool) (Backend, error) {
	switch b.Store.Type {
	case bundle.StoreMemory:
		return NewMemory(time.Now), nil
	case bundle.StoreRedis:
		s, err := NewRedis(RedisOptions{
			Addresses: b.Store.Addresses, Password: c.StorePassword, TLS: b.Store.TLS == bundle.TLSEnabled, RootCAs: roots,
			Namespace: b.Namespace, Bridge: b.Name,
		})
		if err != nil {
			return nil, fmt.Errorf("spec.store: %w", err)
		}
		return s, nil
	default:
		return nil, fmt.Errorf("spec.store.type: this proxy knows %s and %s: upgrade it", bundle.StoreMemory, bundle.StoreRedis)
	}
}
