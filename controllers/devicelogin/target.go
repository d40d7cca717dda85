package devicelogin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

const (
	fieldOwner  = "causeway-login-command"
	storeTries  = 5
	storeWindow = 30 * time.Second
)

// target is where a login goes.
type target struct {
	client  client.Client
	pool    *v1alpha1.AccountPool
	account *v1alpha1.Account
	ref     v1alpha1.SecretKeyReference
}

// find reads the manifest.
func find(ctx context.Context, c client.Client, o options) (*target, error) {
	pool := &v1alpha1.AccountPool{}
	err := c.Get(ctx, types.NamespacedName{Namespace: o.namespace, Name: o.pool}, pool)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("AccountPool %s does not exist in namespace %s: apply it first, or correct --pool and -n", o.pool, o.namespace)
	case err != nil:
		return nil, fmt.Errorf("reading AccountPool %s: %w", o.pool, err)
	}
	at := slices.IndexFunc(pool.Spec.Accounts, func(a v1alpha1.Account) bool { return a.Name == o.account })
	if at < 0 {
		return nil, fmt.Errorf("AccountPool %s has no account %s: it has %s", o.pool, o.account, accounts(pool))
	}
	a := &pool.Spec.Accounts[at]
	if a.OAuth == nil {
		return nil, fmt.Errorf("account %s has an apiKey and no login: replace apiKey by oauth.seedSecretRef in AccountPool %s first",
			o.account, o.pool)
	}
	return &target{client: c, pool: pool, account: a, ref: a.OAuth.SeedSecretRef}, nil
}

// accounts lists the accounts that can be logged in.
func accounts(pool *v1alpha1.AccountPool) string {
	var names []string
	for _, a := range pool.Spec.Accounts {
		if a.OAuth != nil {
			names = append(names, a.Name)
		}
	}
	const most = 10
	switch {
	case len(names) == 0:
		return "none with oauth"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more with oauth", strings.Join(names[:most], ", "), len(names)-most)
	default:
		return strings.Join(names, ", ") + " with oauth"
	}
}

// read returns the Secret, or nil.
func (t *target) read(ctx context.Context) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	err := t.client.Get(ctx, types.NamespacedName{Namespace: t.pool.Namespace, Name: t.ref.Name}, s)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // it does not exist, which is no failure
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s: %w", t.ref.Name, err)
	}
	return s, nil
}

// check refuses to overwrite what is no login.
func (t *target) check(ctx context.Context, force bool) error {
	s, err := t.read(ctx)
	if err != nil || s == nil {
		return err
	}
	return t.judge(s, force)
}

func (t *target) judge(s *corev1.Secret, force bool) error {
	if s.Immutable != nil && *s.Immutable {
		return fmt.Errorf("reading the target: Secret %s is immutable: delete it, or name another in oauth.seedSecretRef", s.Name)
	}
	value, ok := s.Data[t.ref.Key]
	if !ok || force || strings.TrimSpace(string(value)) == "" {
		return nil
	}
	_, problem := effective.SeedOf(t.account, func(string) (map[string][]byte, bool) { return s.Data, true })
	if problem != nil {
		return fmt.Errorf("key %s of Secret %s holds something that is no login: name another key in oauth.seedSecretRef, "+
			"or use --force to overwrite it", t.ref.Key, s.Name)
	}
	return nil
}

// store writes the login, in the form of an auth.json of the Codex CLI.
func (t *target) store(ctx context.Context, got tokens, force bool) error {
	ctx, cancel := context.WithTimeout(ctx, storeWindow)
	defer cancel()
	value, err := authFile(got)
	if err != nil {
		return err
	}
	var last error
	for range storeTries {
		s, err := t.read(ctx)
		if err != nil {
			last = err
			continue
		}
		if s == nil {
			last = t.create(ctx, value)
		} else {
			if err := t.judge(s, force); err != nil {
				return err
			}
			last = t.patch(ctx, s, value)
		}
		if last == nil || apierrors.IsForbidden(last) || apierrors.IsInvalid(last) {
			return last
		}
	}
	return last
}

func (t *target) create(ctx context.Context, value []byte) error {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.pool.Namespace, Name: t.ref.Name,
			Labels: map[string]string{v1alpha1.AppPartOf: v1alpha1.AppPartOfValue},
		},
		Type: corev1.SecretTypeOpaque, Data: map[string][]byte{t.ref.Key: value},
	}
	if err := t.client.Create(ctx, s, client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("creating Secret %s: %w", t.ref.Name, err)
	}
	return nil
}

func (t *target) patch(ctx context.Context, s *corev1.Secret, value []byte) error {
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": s.UID, "resourceVersion": s.ResourceVersion}, // preconditions
		"data":     map[string][]byte{t.ref.Key: value},
	})
	if err != nil {
		return errors.New("encoding the Secret failed")
	}
	out := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
	if err := t.client.Patch(ctx, out, client.RawPatch(types.MergePatchType, raw), client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("patching Secret %s: %w", s.Name, err)
	}
	return nil
}

// authFile is the auth.json of a login.
func authFile(got tokens) ([]byte, error) {
	raw, err := json.MarshalIndent(map[string]any{
		"OPENAI_API_KEY": nil,
		"tokens": map[string]string{
			"id_token": got.id, "access_token": got.access, "refresh_token": got.refresh,
			"account_id": effective.AccountIDOf(got.id, got.access),
		},
		"last_refresh": time.Now().UTC().Format(time.RFC3339),
	}, "", "  ")
	if err != nil {
		return nil, errors.New("encoding the login failed")
	}
	return raw, nil
}
