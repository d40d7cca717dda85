// Package config turns a folder of files into an immutable Runtime and follows
// the folder's changes. The folder is what the operator mounts, or what a
// person without a cluster wrote: the same manifests one would apply.
package config

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
)

// Runtime is one immutable configuration with what was derived from it once.
// A turn takes one Runtime at its start and never looks again.
type Runtime struct {
	Bundle      bundle.Bundle
	Credentials bundle.Credentials
	// Hash is "<bundle hash>.<credentials hash>", what a report acknowledges.
	Hash string
	// Deadlines are those of Bundle.Circuit as durations; 0 = none.
	Deadlines Deadlines
	// Warnings say what is configured but does not work, one sentence each,
	// sorted. They never hold a secret value.
	Warnings []string

	clients  map[[sha256.Size]byte]string
	roots    *x509.CertPool
	peerKeys [][]byte
}

// Deadlines bound the phases of a turn; see bundle.Deadlines.
type Deadlines struct {
	Connect        time.Duration
	TLS            time.Duration
	ResponseHeader time.Duration
	FirstEvent     time.Duration
	Idle           time.Duration
	Keepalive      time.Duration
	// Request 0 = none, for streams.
	Request     time.Duration
	CallerMax   time.Duration
	CancelGrace time.Duration
}

// New derives a Runtime from both halves of a configuration. Its errors name
// the field at fault and never a secret value.
func New(b bundle.Bundle, c bundle.Credentials) (*Runtime, error) {
	clients, err := clientIndex(c.Clients)
	if err != nil {
		return nil, err
	}
	roots, err := rootPool(b.Pool.Provider.CABundle)
	if err != nil {
		return nil, err
	}
	peerKeys, err := c.DecodePeerKeys()
	if err != nil {
		return nil, err
	}
	return &Runtime{
		Bundle: b, Credentials: c, Hash: b.Hash + "." + c.Hash,
		Deadlines: durations(b.Circuit.Deadlines),
		Warnings:  missingCredentials(b, c),
		clients:   clients, roots: roots, peerKeys: peerKeys,
	}, nil
}

// Client names the client that owns key. In mode Open everyone is the client
// "", with or without a key. The key is looked up by its SHA-256, so that the
// time of a look-up tells nothing about the keys that exist: to steer the
// digest's bytes one has to invert the hash.
func (r *Runtime) Client(key string) (name string, ok bool) {
	if r.Bundle.Clients.Mode == bundle.ClientsOpen {
		return "", true
	}
	if key == "" {
		return "", false
	}
	name, ok = r.clients[sha256.Sum256([]byte(key))]
	return name, ok
}

// RootCAs are the certificates to trust upstream; nil = the system's.
func (r *Runtime) RootCAs() *x509.CertPool { return r.roots }

// PeerKeys are the keys of turns between replicas: the first signs, all are
// believed. Callers must not change them.
func (r *Runtime) PeerKeys() [][]byte { return r.peerKeys }

func clientIndex(clients map[string]string) (map[[sha256.Size]byte]string, error) {
	index := make(map[[sha256.Size]byte]string, len(clients))
	for name, digest := range clients {
		var sum [sha256.Size]byte
		raw, err := hex.DecodeString(digest)
		if err != nil || len(raw) != len(sum) {
			return nil, fmt.Errorf("%s: clients[%s]: not a SHA-256 in hexadecimal: write the digest of the key, 64 digits",
				bundle.CredentialsFileName, name)
		}
		copy(sum[:], raw)
		if other, taken := index[sum]; taken {
			first, second := min(name, other), max(name, other)
			return nil, fmt.Errorf("%s: clients[%s] and clients[%s] have the same key: give each client its own",
				bundle.CredentialsFileName, first, second)
		}
		index[sum] = name
	}
	return index, nil
}

// rootPool adds pem to the system's roots. A system without roots (an image
// from scratch) leaves the given ones alone.
func rootPool(pem string) (*x509.CertPool, error) {
	if pem == "" {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM([]byte(pem)) {
		return nil, errors.New("spec.provider.caBundle: holds no PEM certificate: give certificates, not keys")
	}
	return pool, nil
}

func durations(d bundle.Deadlines) Deadlines {
	s := func(n int) time.Duration { return time.Duration(n) * time.Second }
	return Deadlines{
		Connect: s(d.ConnectSeconds), TLS: s(d.TLSSeconds), ResponseHeader: s(d.ResponseHeaderSeconds),
		FirstEvent: s(d.FirstEventSeconds), Idle: s(d.IdleSeconds), Keepalive: s(d.KeepaliveSeconds),
		Request: s(d.RequestSeconds), CallerMax: s(d.CallerMaxSeconds), CancelGrace: s(d.CancelGraceSeconds),
	}
}

func missingCredentials(b bundle.Bundle, c bundle.Credentials) []string {
	var warnings []string
	for _, a := range b.Pool.Accounts {
		if a.State != bundle.AccountDisabled && c.Accounts[a.Name].Bearer() == "" {
			warnings = append(warnings, fmt.Sprintf("account %s has no credential and is not used", a.Name))
		}
	}
	return warnings
}
