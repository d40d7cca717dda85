package credential

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/login"
	"github.com/causeway-dev/causeway/controllers/internal/observe"
)

// world is what was observed for one account.
type world struct {
	key    Key
	pool   *v1alpha1.AccountPool
	issuer effective.Issuer
	facts  login.Facts // but for the record
	// cached is the record as the cache has it; whatever is done about it is
	// decided again on what the API server has.
	cached *login.Record
	owners []metav1.OwnerReference
	// owned says that the cached Secret has these owners, or that there is none.
	owned bool
}

// observe reads what a decision needs; nil if there is no such account.
func (r *Reconciler) observe(ctx context.Context, key Key) (*world, error) {
	var pool v1alpha1.AccountPool
	if err := r.client.Get(ctx, key.NamespacedName, &pool); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	account := accountOf(&pool, key.Account)
	if account == nil || !pool.DeletionTimestamp.IsZero() {
		return nil, nil //nolint:nilnil // an account that is gone has no world, which is no failure
	}
	w := &world{key: key, pool: &pool}
	w.facts.Key = key.Namespace + "/" + key.Name + "/" + key.Account
	w.issuer, w.facts.Issuer = effective.IssuerOf(&pool, account)
	names := []string{account.OAuth.SeedSecretRef.Name, key.secret().Name}
	secrets, err := r.secrets.Read(ctx, key.Namespace, names)
	if err != nil {
		return nil, err
	}
	lookup := func(name string) (map[string][]byte, bool) {
		data, ok := secrets[name]
		return data, ok
	}
	if seed, problem := effective.SeedOf(account, lookup); problem == nil {
		w.facts.Seed = &seed
	}
	if err := r.observeSecret(ctx, w, account, secrets[key.secret().Name]); err != nil {
		return nil, err
	}
	if w.facts.Taken, err = r.taken(ctx, w); err != nil {
		return nil, err
	}
	w.facts.Rejected, err = r.rejected(ctx, key)
	return w, err
}

// observeSecret reads who owns the login and the record that the cache has.
func (r *Reconciler) observeSecret(ctx context.Context, w *world, a *v1alpha1.Account, data map[string][]byte) error {
	seed, err := r.metadata(ctx, types.NamespacedName{Namespace: w.key.Namespace, Name: a.OAuth.SeedSecretRef.Name})
	if err != nil {
		return err
	}
	w.owners = ownersOf(w.pool, seed)
	own, err := r.metadata(ctx, w.key.secret())
	if err != nil {
		return err
	}
	w.owned = own == nil || owned(own.OwnerReferences, w.owners)
	// One that cannot be read is judged when the API server is asked.
	if record, ok, err := login.Decode(data); err == nil && ok {
		w.cached = &record
	}
	return nil
}

// metadata is that of a Secret in the cache, or nil.
func (r *Reconciler) metadata(ctx context.Context, key types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.client.Get(ctx, key, meta)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // it does not exist, which is no failure
	case err != nil:
		return nil, fmt.Errorf("reading metadata of Secret %s: %w", key.Name, err)
	}
	return meta, nil
}

// taken says whether another account of the namespace has the same login, and
// has it with more right. It is asked before a login is begun and until it was
// refreshed for the first time.
func (r *Reconciler) taken(ctx context.Context, w *world) (bool, error) {
	if w.facts.Seed == nil {
		return false, nil
	}
	digest := w.facts.Seed.Digest()
	begun := w.cached != nil && w.cached.Seed == digest && w.cached.Lost != effective.CauseDuplicate
	if begun && w.cached.Settled != "" {
		return false, nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	err := r.client.List(ctx, list, client.InNamespace(w.key.Namespace), client.MatchingLabels{
		v1alpha1.AppManagedBy: v1alpha1.AppManagedByValue, v1alpha1.AppComponent: component,
	})
	if err != nil {
		return false, fmt.Errorf("listing Secrets of logins: %w", err)
	}
	var mine *metav1.PartialObjectMetadata
	for i := range list.Items {
		if list.Items[i].Name == w.key.secret().Name {
			mine = &list.Items[i]
		}
	}
	for i := range list.Items {
		other := &list.Items[i]
		if other.Name == w.key.secret().Name || other.Annotations[annotationSeed] != short(digest) {
			continue
		}
		if !begun || mine == nil || before(other, mine) {
			return true, nil
		}
	}
	return earlier(w.pool, w.key.Account, digest, begun, func(a *v1alpha1.Account) string {
		return r.seedDigest(ctx, w.key.Namespace, a)
	}), nil
}

// before orders Secrets by age, so that of two only one gives way.
func before(a, b *metav1.PartialObjectMetadata) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

// earlier says whether an account before this one in the manifest has the same
// seed: of two that come at once, the first begins.
func earlier(pool *v1alpha1.AccountPool, account, digest string, begun bool, digestOf func(*v1alpha1.Account) string) bool {
	if begun {
		return false
	}
	for i := range pool.Spec.Accounts {
		a := &pool.Spec.Accounts[i]
		if a.Name == account {
			return false
		}
		if a.OAuth != nil && digestOf(a) == digest {
			return true
		}
	}
	return false
}

func (r *Reconciler) seedDigest(ctx context.Context, namespace string, a *v1alpha1.Account) string {
	secrets, err := r.secrets.Read(ctx, namespace, []string{a.OAuth.SeedSecretRef.Name})
	if err != nil {
		return ""
	}
	seed, problem := effective.SeedOf(a, func(name string) (map[string][]byte, bool) {
		data, ok := secrets[name]
		return data, ok
	})
	if problem != nil {
		return ""
	}
	return seed.Digest()
}

// rejected is the highest generation of the account's token that a proxy saw
// rejected. It does not matter how old the report is: what was rejected once is
// not accepted later, and a newer token has a higher number.
func (r *Reconciler) rejected(ctx context.Context, key Key) (int64, error) {
	policies, err := observe.Policies(ctx, r.client, key.Namespace, observe.IndexPool, key.Name)
	if err != nil {
		return 0, err
	}
	var highest int64
	for _, policy := range policies {
		reports, err := observe.Reports(ctx, r.client, policy)
		if err != nil {
			return 0, err
		}
		for _, report := range reports {
			if report.Replica != nil {
				highest = max(highest, rejections(report.Replica)[key.Account])
			}
		}
	}
	return highest, nil
}

// rejections maps accounts to the generation of the token that the proxy saw
// rejected. A token without a number is not one of ours.
func rejections(replica *v1alpha1.BridgeReplica) map[string]int64 {
	found := map[string]int64{}
	for _, a := range replica.Status.Accounts {
		if a.State == v1alpha1.AccountConditionReauthRequired && a.Reason == reasonRejected && a.CredentialGeneration > 0 {
			found[a.Name] = a.CredentialGeneration
		}
	}
	return found
}

// reasonRejected is how proxies call a 401 to a token.
const reasonRejected = "AuthRejected"

// accountOf is the OAuth account of that name, or nil.
func accountOf(pool *v1alpha1.AccountPool, name string) *v1alpha1.Account {
	for i := range pool.Spec.Accounts {
		if a := &pool.Spec.Accounts[i]; a.Name == name && a.OAuth != nil {
			return a
		}
	}
	return nil
}
