package plan

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/desired"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
)

// resolved is a configuration made from the manifests of the world.
type resolved struct {
	accepted, refs Verdict
	warnings       []effective.Warning
	// ok says that documents hold; otherwise what is stored stays as it is.
	ok        bool
	documents desired.Documents
}

// resolve makes the documents of the proxies. While a pool is missing or not
// accepted, nothing new is made: the proxies keep what they have. While only
// the circuit policy is, its last accepted form is used.
func resolve(w World) resolved {
	last := stored(w)
	pool, poolRef := resolvePool(w)
	circuit, circuitRef := resolveCircuit(w, last)
	made, errs := effective.Bridge(w.Policy, pool, circuit)
	r := resolved{
		accepted: accepted(errs), refs: firstFailure(poolRef, circuitRef),
		warnings: effective.Warnings(w.Policy, pool),
	}
	if !poolRef.OK {
		return r
	}
	credentials, unresolved := effective.Credentials(w.Pool, w.Policy, func(name string) (map[string][]byte, bool) {
		data, ok := w.Secrets[name]
		return data, ok
	})
	r.refs = firstFailure(circuitRef, secrets(unresolved))
	if len(errs) > 0 || !circuitRef.OK && circuit.Name == "" {
		return r
	}
	credentials.PeerKeys = peerKeys(w)
	return r.encode(made.Seal(), credentials.Seal())
}

// peerKeys are those that the proxies have already: with others they would not
// believe each other until all have them. Keys that were lost or spoilt are
// replaced by a new one.
func peerKeys(w World) []string {
	if keys := storedPeerKeys(w.Credentials); len(keys) > 0 {
		return keys
	}
	return []string{w.FreshPeerKey}
}

// HasPeerKeys says whether a credentials document needs no fresh key.
func HasPeerKeys(document []byte) bool { return len(storedPeerKeys(document)) > 0 }

// storedPeerKeys are the keys of a document; none if any of them is not one.
func storedPeerKeys(document []byte) []string {
	c, err := bundle.DecodeCredentials(document)
	if err != nil {
		return nil // there is none, or somebody edited it
	}
	if _, err := c.DecodePeerKeys(); err != nil {
		return nil
	}
	return c.PeerKeys
}

func (r resolved) encode(b bundle.Bundle, c bundle.Credentials) resolved {
	d := desired.Documents{BundleHash: b.Hash, CredentialsHash: c.Hash}
	var err error
	if d.Bundle, err = b.Encode(); err != nil {
		r.accepted = Verdict{Reason: v1alpha1.ReasonInvalidSpec, Message: err.Error()}
		return r
	}
	if d.Credentials, err = c.Encode(); err != nil {
		// The text of this error may hold what could not be encoded.
		r.refs = Verdict{Reason: v1alpha1.ReasonInvalidValue, Message: "The credentials cannot be encoded."}
		return r
	}
	r.ok, r.documents = true, d
	return r
}

// stored is the bundle that the proxies have now; its zero value when there is none.
func stored(w World) bundle.Bundle {
	if w.Config == nil {
		return bundle.Bundle{}
	}
	b, err := bundle.Decode([]byte(w.Config.Data[bundle.FileName]))
	if err != nil {
		return bundle.Bundle{} // somebody edited it: it is as good as none
	}
	return b
}

func resolvePool(w World) (bundle.Pool, Verdict) {
	name := w.Policy.Spec.AccountPoolRef.Name
	if w.Pool == nil {
		return bundle.Pool{}, Verdict{Reason: v1alpha1.ReasonAccountPoolNotFound,
			Message: fmt.Sprintf("AccountPool %q does not exist in this namespace: create it or correct spec.accountPoolRef.name.", name)}
	}
	pool, errs := effective.Pool(w.Pool)
	if len(errs) > 0 {
		return bundle.Pool{}, Verdict{Reason: v1alpha1.ReasonAccountPoolNotAccepted,
			Message: fmt.Sprintf("AccountPool %q is not accepted; its condition Accepted says why.", name)}
	}
	return pool, Verdict{OK: true}
}

func resolveCircuit(w World, last bundle.Bundle) (bundle.Circuit, Verdict) {
	ref := w.Policy.Spec.CircuitPolicyRef
	if ref == nil {
		builtIn, _ := effective.Circuit(nil)
		return builtIn, Verdict{OK: true}
	}
	var bad Verdict
	if w.Circuit == nil {
		bad = Verdict{Reason: v1alpha1.ReasonCircuitPolicyNotFound,
			Message: fmt.Sprintf("CircuitPolicy %q does not exist in this namespace: create it or correct spec.circuitPolicyRef.name.", ref.Name)}
	} else {
		circuit, errs := effective.Circuit(w.Circuit)
		if len(errs) == 0 {
			return circuit, Verdict{OK: true}
		}
		bad = Verdict{Reason: v1alpha1.ReasonCircuitPolicyNotAccepted,
			Message: fmt.Sprintf("CircuitPolicy %q is not accepted; its last accepted form stays in force.", ref.Name)}
	}
	if last.Circuit.Name == ref.Name {
		return last.Circuit, bad
	}
	// Only to judge the rest of the policy; nothing is made from it.
	builtIn, _ := effective.Circuit(nil)
	builtIn.Name = ""
	return builtIn, bad
}

func accepted(errs field.ErrorList) Verdict {
	if len(errs) == 0 {
		return Verdict{OK: true, Reason: v1alpha1.ReasonValid, Message: "The spec is valid."}
	}
	return Verdict{Reason: effective.Reason(errs), Message: effective.Message(errs)}
}

func secrets(unresolved []effective.Unresolved) Verdict {
	if len(unresolved) == 0 {
		return Verdict{OK: true, Reason: v1alpha1.ReasonResolved, Message: "All references are resolved."}
	}
	message := unresolved[0].Message
	if n := len(unresolved) - 1; n > 0 {
		message = fmt.Sprintf("%s (and %d more)", message, n)
	}
	return Verdict{Reason: unresolved[0].Reason, Message: message}
}

// firstFailure is the first verdict that is not OK, else the last.
func firstFailure(list ...Verdict) Verdict {
	for _, v := range list {
		if !v.OK {
			return v
		}
	}
	return list[len(list)-1]
}

// date says when the wanted documents came to differ from the ones before, and
// why. Both are stored with the ConfigMap. While proxies still owe an answer to
// an earlier change, its date stays, so that a pool that is edited all the time
// does not hide a proxy that hangs.
func (r resolved) date(w World, active []reports.Report, now time.Time) desired.Documents {
	before := desired.Documents{}
	if w.Config != nil {
		a := w.Config.Annotations
		before = desired.Documents{
			BundleHash: a[v1alpha1.AnnotationConfigHash], CredentialsHash: a[v1alpha1.AnnotationCredentialsHash],
			ChangedAt: a[desired.AnnotationChangedAt], Cause: desired.Cause(a[desired.AnnotationCause]),
		}
	}
	if !r.ok {
		return before
	}
	d := r.documents
	switch {
	case d.BundleHash == before.BundleHash && d.CredentialsHash == before.CredentialsHash && before.ChangedAt != "":
		d.ChangedAt, d.Cause = before.ChangedAt, before.Cause
		return d
	case before.BundleHash == "" || stored(w).Generation != w.Policy.Generation:
		d.Cause = desired.CauseSpec
	case settled(active, before):
		d.Cause = desired.CauseReference
	default:
		d.Cause, d.ChangedAt = before.Cause, before.ChangedAt
		return d
	}
	d.ChangedAt = now.UTC().Format(time.RFC3339)
	return d
}

// settled says whether all ready proxies of the active slot serve the documents.
// A candidate has its own deadline, and a version on its way out may refuse them.
func settled(active []reports.Report, d desired.Documents) bool {
	for _, r := range active {
		if r.Ready() && (r.Replica == nil || !reports.Acknowledged(r.Replica.Status.ObservedConfig, d.BundleHash, d.CredentialsHash)) {
			return false
		}
	}
	return true
}
