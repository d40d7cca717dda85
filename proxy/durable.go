package proxy

import (
	"crypto/rand"
	"fmt"
	"os"
	"strings"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// openStore opens the store that replicas share; nil = what sessions know lives
// in the memory of this process.
func openStore(o Options, rt *config.Runtime, others *peers) (store.Backend, store.Holder, error) {
	if rt.Bundle.Store.Type != bundle.StoreRedis {
		return nil, store.Holder{}, nil
	}
	s, err := store.Open(rt.Bundle, rt.Credentials, nil)
	if err != nil {
		return nil, store.Holder{}, fmt.Errorf("opening the store: %w", err)
	}
	holder := store.Holder{Process: rand.Text(), Pod: standalone(o)}
	if others != nil {
		holder.Pod, holder.Address = others.self.Pod, others.self.Address
	}
	return s, holder, nil
}

// standalone names a replica that is no pod. The same name means that an earlier
// process of it is gone, which holds for one that listens on the same port.
func standalone(o Options) string {
	host, err := os.Hostname()
	if err != nil || strings.HasSuffix(o.Listen, ":0") {
		return rand.Text()
	}
	return host + "/" + o.Listen
}

// closeStore frees the store's connections, after all that uses it has ended.
func (p *process) closeStore() {
	if p.store == nil {
		return
	}
	if err := p.store.Close(); err != nil {
		p.log.Debug("Closing the store", "error", err)
	}
}
