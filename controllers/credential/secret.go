package credential

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/login"
)

const (
	// fieldOwner writes the Secrets of logins.
	fieldOwner = "causeway-login"
	// component is their label app.kubernetes.io/component.
	component = "login"
	// annotationSeed is the beginning of the digest of the seed, by which two
	// accounts with one login are found without reading either.
	annotationSeed = v1alpha1.Prefix + "seed-digest"
	seedDigits     = 32
	// tries bounds how often a write that met another one is made anew.
	tries = 6
)

var (
	// errForeign says that a Secret of the name of ours is somebody else's.
	errForeign = errors.New("the Secret exists and is not one of the operator's")
	// errStale says that the record is not what the change was meant for any more.
	errStale = errors.New("the login was changed by somebody else meanwhile")
)

// held is a Secret of ours, or none.
type held struct {
	exists          bool
	uid             types.UID
	resourceVersion string
	owners          []metav1.OwnerReference
	record          *login.Record
}

// vault reads and writes the Secrets of logins. There is one for each account:
// accounts that are refreshed at the same moment do not meet in one object, and
// one that is damaged or deleted costs one login.
type vault struct {
	client client.Client
	live   client.Reader
}

// read asks the API server, never the cache: a decision about a token that is
// used once is made on what is true now.
func (v vault) read(ctx context.Context, key Key) (held, error) {
	var s corev1.Secret
	if err := v.live.Get(ctx, key.secret(), &s); err != nil {
		if apierrors.IsNotFound(err) {
			return held{}, nil
		}
		return held{}, fmt.Errorf("reading Secret %s: %w", key.secret().Name, err)
	}
	if s.Labels[v1alpha1.AppManagedBy] != v1alpha1.AppManagedByValue || s.Labels[v1alpha1.LabelPool] != labelValue(key.Name) {
		return held{}, fmt.Errorf("reading Secret %s: %w", s.Name, errForeign)
	}
	h := held{exists: true, uid: s.UID, resourceVersion: s.ResourceVersion, owners: s.OwnerReferences}
	r, ok, err := login.Decode(s.Data)
	if err != nil {
		return held{}, fmt.Errorf("reading Secret %s: %w", s.Name, err)
	}
	if ok {
		h.record = &r
	}
	return h, nil
}

// change writes what the function makes of the record as it is now. done says
// whether the change is in it already, from a write whose answer got lost. It is
// errStale if the function declines.
func (v vault) change(
	ctx context.Context, key Key, owners []metav1.OwnerReference, done func(login.Record) bool,
	next func(*login.Record) (login.Record, bool),
) error {
	var last error
	for range tries {
		h, err := v.read(ctx, key)
		if err != nil {
			return errors.Join(last, err)
		}
		if h.record != nil && done(*h.record) {
			return nil
		}
		record, ok := next(h.record)
		if !ok {
			return errStale
		}
		err = v.write(ctx, key, h, owners, record)
		switch {
		case err == nil:
			return nil
		case conflicting(err):
			last = err
		case last != nil && !conflicting(last):
			return err // twice: the API server will not have it
		default:
			last = err // it may have been written all the same
		}
	}
	return last
}

func conflicting(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// write stores a record in the place of the version that was read.
func (v vault) write(ctx context.Context, key Key, h held, owners []metav1.OwnerReference, r login.Record) error {
	data, err := r.Encode()
	if err != nil {
		return err
	}
	digest := short(r.Seed)
	if r.Lost == effective.CauseDuplicate {
		digest = "" // it is not this account that has the login
	}
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.secret().Name, Labels: key.labels(), OwnerReferences: owners,
			Annotations: map[string]string{annotationSeed: digest},
		},
		Type: corev1.SecretTypeOpaque, Data: data,
	}
	if !h.exists {
		if err := v.client.Create(ctx, s, client.FieldOwner(fieldOwner)); err != nil {
			return fmt.Errorf("creating Secret %s: %w", s.Name, err)
		}
		return nil
	}
	return v.patch(ctx, s, h, map[string]any{
		"metadata": map[string]any{
			"uid": h.uid, "resourceVersion": h.resourceVersion, // preconditions
			"labels": s.Labels, "annotations": s.Annotations, "ownerReferences": owners,
		},
		"data": data,
	})
}

// own brings the owner references up to date, and nothing else.
func (v vault) own(ctx context.Context, key Key, h held, owners []metav1.OwnerReference) error {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.secret().Name}}
	return v.patch(ctx, s, h, map[string]any{"metadata": map[string]any{
		"uid": h.uid, "resourceVersion": h.resourceVersion, "ownerReferences": owners,
	}})
}

func (v vault) patch(ctx context.Context, s *corev1.Secret, h held, patch map[string]any) error {
	raw, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding Secret %s failed", s.Name) // the cause may quote what it holds
	}
	if err := v.client.Patch(ctx, s, client.RawPatch(types.MergePatchType, raw), client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("patching Secret %s of version %s: %w", s.Name, h.resourceVersion, err)
	}
	return nil
}

// ownersOf are those of a login's Secret: it lives as long as the pool or the
// seed does. A pool that is made anew finds its logins, and so does one whose seed
// is; only when both are gone, the garbage collector takes the login, too. Without
// that the seed, whose refresh token has been used, would be all that is left.
func ownersOf(pool *v1alpha1.AccountPool, seed *metav1.PartialObjectMetadata) []metav1.OwnerReference {
	controller := true
	list := []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindAccountPool, Name: pool.Name, UID: pool.UID, Controller: &controller,
	}}
	if seed != nil {
		list = append(list, metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: seed.Name, UID: seed.UID})
	}
	return list
}

// owned says whether the references name the owners. A seed that is gone for now
// keeps its reference.
func owned(have, want []metav1.OwnerReference) bool {
	for _, w := range want {
		if !slices.ContainsFunc(have, func(h metav1.OwnerReference) bool { return equality.Semantic.DeepEqual(h, w) }) {
			return false
		}
	}
	return true
}

func short(digest string) string { return digest[:min(len(digest), seedDigits)] }

// Key names one account.
type Key struct {
	types.NamespacedName // of the pool
	Account              string
}

func (k Key) secret() types.NamespacedName {
	return types.NamespacedName{Namespace: k.Namespace, Name: effective.LoginSecretName(k.Name, k.Account)}
}

// labels of the Secret, in the style of everything that the operator makes.
func (k Key) labels() map[string]string {
	return map[string]string{
		v1alpha1.AppName: "causeway-login", v1alpha1.AppInstance: labelValue(k.Name), v1alpha1.AppComponent: component,
		v1alpha1.AppManagedBy: v1alpha1.AppManagedByValue, v1alpha1.AppPartOf: v1alpha1.AppPartOfValue,
		v1alpha1.LabelPool: labelValue(k.Name),
	}
}

// labelValue is a name, or as much of it as a label holds.
func labelValue(name string) string {
	const most = 63
	if len(name) <= most {
		return name
	}
	name = name[:most]
	for name != "" && (name[len(name)-1] == '-' || name[len(name)-1] == '.') {
		name = name[:len(name)-1]
	}
	return name
}
