// Package credential keeps the logins of OAuth accounts alive. It is the only
// holder of refresh tokens: it takes a login over from the Secret that a pool
// names, exchanges tokens at the issuer before they end, and leaves to proxies an
// access token alone.
//
// A refresh token serves once, and a second use may revoke the login. So an
// exchange has two phases: it is announced in the Secret of the login, which two
// cannot do at once, then there is one request, and then the new tokens are stored
// where nothing was stored since. What is decided and when is in
// controllers/internal/login.
package credential

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/login"
	"github.com/causeway-dev/causeway/controllers/internal/notify"
	"github.com/causeway-dev/causeway/controllers/internal/observe"
)

const (
	// storeTimeout bounds the writes after an exchange in one go.
	storeTimeout = 10 * time.Second
	// storeRetry is how soon a token that could not be stored is stored again.
	storeRetry = time.Second
	// foreignRetry is how often a name that is taken is looked at again.
	foreignRetry = time.Minute
)

// Reconciler reconciles the login of one account. It is safe for concurrent use
// for different accounts.
type Reconciler struct {
	client  client.Client
	secrets *observe.Secrets
	vault   vault
	events  *notify.Recorder
	clock   clock.PassiveClock
	issuer  Exchanger
	keeper  *Keeper
	seen    sightings
}

// Options of a Reconciler; all fields are required.
type Options struct {
	Client    client.Client
	Live      client.Reader
	Secrets   *observe.Secrets
	Events    *notify.Recorder
	Clock     clock.PassiveClock
	Exchanger Exchanger
	Keeper    *Keeper
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	return &Reconciler{
		client: o.Client, secrets: o.Secrets, vault: vault{client: o.Client, live: o.Live}, events: o.Events, clock: o.Clock,
		issuer: o.Exchanger, keeper: o.Keeper,
	}
}

// Reconcile does what is due for one account.
func (r *Reconciler) Reconcile(ctx context.Context, key Key) (ctrl.Result, error) {
	if r.store(ctx, key) {
		return ctrl.Result{RequeueAfter: storeRetry}, nil
	}
	w, err := r.observe(ctx, key)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading state of a login: %w", err)
	}
	if w == nil {
		r.seen.forget(key)
		return ctrl.Result{}, nil
	}
	step := r.next(w, w.cached)
	if step.Do == login.Rest && w.owned {
		return r.rest(step), nil
	}
	h, err := r.vault.read(ctx, key)
	if err != nil {
		return r.failed(ctx, w, err)
	}
	if h.exists && !owned(h.owners, w.owners) {
		if err := r.vault.own(ctx, key, h, w.owners); err != nil {
			return r.failed(ctx, w, err)
		}
		return ctrl.Result{RequeueAfter: soon()}, nil
	}
	switch step = r.next(w, h.record); step.Do {
	case login.Refresh:
		return r.refresh(ctx, w)
	case login.Rest:
		return r.rest(step), nil
	default:
		return r.note(ctx, w, step)
	}
}

// next decides on a record.
func (r *Reconciler) next(w *world, record *login.Record) login.Step {
	f := w.facts
	f.Record = record
	if record != nil && record.Intent != nil {
		f.IntentSeen = r.seen.first(w.key, record.Intent.Nonce, r.clock.Now())
	}
	return login.Next(f, r.clock.Now())
}

func (r *Reconciler) rest(step login.Step) ctrl.Result {
	if step.At.IsZero() {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: max(step.At.Sub(r.clock.Now()), 100*time.Millisecond)}
}

// note writes a change that needs no issuer.
func (r *Reconciler) note(ctx context.Context, w *world, step login.Step) (ctrl.Result, error) {
	var made login.Record
	err := r.vault.change(ctx, w.key, w.owners, func(login.Record) bool { return false },
		func(have *login.Record) (login.Record, bool) {
			if step = r.next(w, have); step.Do == login.Rest || step.Do == login.Refresh {
				return login.Record{}, false
			}
			made = changed(w.facts, have, step, r.clock.Now())
			return made, true
		})
	if err != nil {
		return r.failed(ctx, w, err)
	}
	logger := log.FromContext(ctx)
	switch step.Do {
	case login.Adopt:
		logger.Info("Took over a login", "generation", made.Generation)
	case login.Lose:
		logger.Info("Login is lost", "generation", made.Generation, "reason", made.Lost)
	default:
		logger.Info("Took away a token that serves no more", "generation", made.Generation)
	}
	return ctrl.Result{RequeueAfter: soon()}, nil
}

// changed is the record after a step that needs no issuer.
func changed(f login.Facts, have *login.Record, step login.Step, now time.Time) login.Record {
	var r login.Record
	if have != nil {
		r = *have
	}
	switch step.Do {
	case login.Adopt:
		r = r.Adopt(*f.Seed, now)
		if f.Taken {
			r = r.Lose(effective.CauseDuplicate)
		}
		return r
	case login.Lose:
		return r.Lose(step.Cause)
	default:
		return r.Drop()
	}
}

// refresh announces an exchange, makes it, and stores what came of it.
func (r *Reconciler) refresh(ctx context.Context, w *world) (ctrl.Result, error) {
	if ctx.Err() != nil {
		return ctrl.Result{}, nil
	}
	end := r.keeper.begin()
	defer end()
	// From here on nothing is left to a context that ends early: an announcement
	// would have to be waited out, and an exchange may have used the token up.
	ctx = context.WithoutCancel(ctx)
	began := r.clock.Now()
	base, err := r.announce(ctx, w)
	if err != nil {
		return r.failed(ctx, w, err)
	}
	if passed(began, r.clock.Now()) > sendWithin {
		// The process stood still, so that another one may have waited the announcement
		// out and used the token. Ours is waited out now.
		log.FromContext(ctx).Info("Did not send a refresh that was announced too long ago", "generation", base.Generation)
		return ctrl.Result{RequeueAfter: soon()}, nil
	}
	logger := log.FromContext(ctx).WithValues("generation", base.Generation, "reason", string(base.Intent.Reason))
	logger.V(1).Info("Refreshing login")
	reply := r.issuer.Exchange(ctx, w.issuer, base.RefreshToken)
	exchanges.WithLabelValues(string(reply.Outcome)).Inc()
	if reply.Outcome != login.Granted {
		return r.refused(ctx, w, base, reply)
	}
	logger.Info("Refreshed login")
	r.keeper.hold(w.key, r.storing(w, base, reply.Grant))
	if r.store(ctx, w.key) {
		return ctrl.Result{RequeueAfter: storeRetry}, nil
	}
	return ctrl.Result{RequeueAfter: soon()}, nil
}

// sendWithin is how long after its announcement an exchange may begin, so that it is
// over before others stop waiting for it.
const sendWithin = login.IntentLife / 2

// passed is the time between two looks at the clock, of whichever clock went on: one
// stands still while the machine is suspended, the other can be set.
func passed(began, now time.Time) time.Duration {
	return max(now.Sub(began), now.Round(0).Sub(began.Round(0)))
}

// announce writes the intent of an exchange, which only one of several can.
func (r *Reconciler) announce(ctx context.Context, w *world) (base login.Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	nonce := newNonce()
	mine := func(have login.Record) bool { return have.Intent != nil && have.Intent.Nonce == nonce }
	err = r.vault.change(ctx, w.key, w.owners, mine, func(have *login.Record) (login.Record, bool) {
		step := r.next(w, have)
		if step.Do != login.Refresh {
			return login.Record{}, false
		}
		base = have.Begin(nonce, step.Reason, r.clock.Now())
		return base, true
	})
	return base, err
}

// storing returns the write of a grant. Whoever leads by now, the grant is stored
// if nothing took the place of the token that was exchanged for it: thrown away,
// the login would be lost.
func (r *Reconciler) storing(w *world, base login.Record, g login.Grant) store {
	now := r.clock.Now()
	done := func(have login.Record) bool { return have.Settled == base.Intent.Nonce }
	return func(ctx context.Context) error {
		err := r.vault.change(ctx, w.key, w.owners, done, func(have *login.Record) (login.Record, bool) {
			if have == nil {
				have = &base // the Secret was deleted; this is all that is left of the login
			}
			return have.Settle(*base.Intent, base.Seed, g, now)
		})
		if errors.Is(err, errStale) {
			log.FromContext(ctx).Info("A token came too late: another login took the place of its own",
				"generation", base.Generation)
			return nil
		}
		return err
	}
}

// store tries to store the token that is held for an account; held says whether
// one still is.
func (r *Reconciler) store(ctx context.Context, key Key) (held bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if err := r.keeper.settle(ctx, key); err != nil {
		log.FromContext(ctx).Error(err, "Cannot store a token; it is kept in memory until it can be")
		return true
	}
	return false
}

// refused stores that an exchange failed. If even that fails, the announcement
// stays and is waited out.
func (r *Reconciler) refused(ctx context.Context, w *world, base login.Record, reply Reply) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	log.FromContext(ctx).Info("Cannot refresh login", "generation", base.Generation, "outcome", string(reply.Outcome), "reason", reply.Cause)
	err := r.vault.change(ctx, w.key, w.owners, func(login.Record) bool { return false },
		func(have *login.Record) (login.Record, bool) {
			if have == nil {
				return login.Record{}, false
			}
			return have.Fail(*base.Intent, reply.Outcome, reply.Cause, r.clock.Now())
		})
	if err != nil && !errors.Is(err, errStale) {
		return r.failed(ctx, w, err)
	}
	if reply.Outcome == login.Unknown {
		r.events.Send(w.pool, notify.Event{
			Warning: true, Reason: v1alpha1.ReasonRefreshUncertain, Action: v1alpha1.ActionReconcile, Topic: w.key.Account,
			Note: fmt.Sprintf("Account %s: the issuer's reply to a refresh got lost, so the login may be spent; it is tried once more by itself",
				w.key.Account),
		})
	}
	return ctrl.Result{RequeueAfter: soon()}, nil
}

// failed maps the failure of a read or write to when it is tried again.
func (r *Reconciler) failed(ctx context.Context, w *world, err error) (ctrl.Result, error) {
	switch {
	case errors.Is(err, errStale), conflicting(err):
		return ctrl.Result{RequeueAfter: soon()}, nil
	case errors.Is(err, errForeign), errors.Is(err, login.ErrUnreadable):
		r.events.Send(w.pool, notify.Event{
			Warning: true, Reason: v1alpha1.EventAdoptionRefused, Action: v1alpha1.ActionReconcile,
			Note: fmt.Sprintf("Secret %s is where the operator keeps the login of account %s, and is not of its making: "+
				"delete it or rename the account", w.key.secret().Name, w.key.Account),
		})
		return ctrl.Result{RequeueAfter: foreignRetry}, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return ctrl.Result{}, nil
	default:
		log.FromContext(ctx).V(1).Info("Cannot go on with a login")
		return ctrl.Result{}, err
	}
}

// soon is when to look again after a write: the cache is behind it for a moment.
func soon() time.Duration {
	return 200*time.Millisecond + mathrand.N(300*time.Millisecond) //nolint:gosec // jitter
}

func newNonce() string {
	var raw [12]byte
	_, _ = rand.Read(raw[:]) // never fails: it ends the process instead
	return hex.EncodeToString(raw[:])
}

// sightings remembers when an intent was first seen. It is safe for concurrent use.
type sightings struct {
	mu sync.Mutex // guards at
	at map[Key]sighting
}

type sighting struct {
	nonce string
	at    time.Time
}

func (s *sightings) first(key Key, nonce string, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have, ok := s.at[key]; ok && have.nonce == nonce {
		return have.at
	}
	if s.at == nil {
		s.at = map[Key]sighting{}
	}
	s.at[key] = sighting{nonce, now}
	return now
}

func (s *sightings) forget(key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.at, key)
}

var _ reconcile.TypedReconciler[Key] = (*Reconciler)(nil)
