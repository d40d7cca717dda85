package session

import (
	"context"
	"errors"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/store"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// Times of ownership.
const (
	// claimTimeout bounds one claim.
	claimTimeout = 2 * time.Second
	// claimWait is how long a whole payload waits for the stored record. What the
	// record would add to it is a warm prompt cache; a store that answers does so
	// in a millisecond.
	claimWait = 100 * time.Millisecond
	// claimRetry is how often a claim is repeated while turns wait for it.
	claimRetry = time.Second
	// leaseTime is how long a key stays with a replica that falls silent, and so how
	// long its conversations wait at most for another.
	leaseTime = 30 * time.Second
	// maxMissed bounds the changes that are remembered for a record that nobody
	// owns; the oldest go first.
	maxMissed = 16
)

// ownership is what an actor knows of who owns its key.
type ownership struct {
	// kept: the key's record lives in the store.
	kept bool
	// held is the proof while lease is not nil.
	held     store.Held
	lease    Lease
	claiming bool
	failedAt time.Time // of the last claim, zero = it did not fail
	// last: nobody else is known to have owned the key after this process.
	last bool
	// foreign is the live owner that the last claim found; until its lease ends.
	foreign store.Holder
	until   time.Time
	// saved is the version that was handed to the store last.
	saved int64
	// changes are what happened to the record while nobody owned it.
	changes []dated
}

type dated struct {
	event Event
	at    time.Time
}

// valid says whether this replica owns the key at this moment.
func (o *ownership) valid() bool { return o.lease != nil && o.lease.Valid() }

// missed remembers an event that no store was told. Where an attempt went and
// which sockets ended means nothing to a record of another time.
func (o *ownership) missed(e Event, at time.Time) {
	if !o.kept || o.valid() || e.Sent != nil || e.ConnectionGone != 0 || e.Probe != nil {
		return
	}
	o.changes = append(o.changes, dated{e, at})
	if len(o.changes) > maxMissed {
		o.changes = o.changes[1:]
	}
}

// claim asks the store for the key, unless it is held or asked for already. A
// store in this process answers at once.
func (a *actor) claim() {
	o := &a.own
	if !o.kept || o.claiming || o.valid() || a.closing {
		return
	}
	if !o.failedAt.IsZero() && a.now().Sub(o.failedAt) < claimRetry {
		return
	}
	o.claiming, o.foreign = true, store.Holder{}
	s := a.services
	key := store.Key(a.key.Name())
	work := func() any {
		ctx, cancel := context.WithTimeout(a.ctx, claimTimeout)
		defer cancel()
		// What an earlier session of this process still has to write comes first.
		if err := s.Writer.Await(ctx, key); err != nil {
			return claimed{err: err}
		}
		started := s.Instant()
		c, err := s.Store.Claim(ctx, key, s.Holder, s.fence(), leaseTime)
		return claimed{c, err, started}
	}
	if s.Local {
		a.claimed(work().(claimed))
		return
	}
	a.world.beside(a, work)
}

// fence is the epoch of this replica's authority; 0 = there is but one slot.
func (s *Services) fence() int64 {
	if s.Authority == nil {
		return 0
	}
	return s.Authority.Epoch()
}

// heard tells of the epoch that a refusal of the store has shown.
func (s *Services) heard(current store.Entry) {
	if s.Authority != nil {
		s.Authority.Heard(current.Fence)
	}
}

// claimed takes the key over, or notes who has it.
func (a *actor) claimed(m claimed) {
	o := &a.own
	o.claiming = false
	var other *store.Fenced
	if errors.As(m.err, &other) {
		a.services.heard(other.Current)
	}
	switch {
	case m.err == nil:
		o.failedAt, o.foreign = time.Time{}, store.Holder{}
		a.takeOver(m)
	case errors.As(m.err, &other) && other.Current.Holder != (store.Holder{}):
		o.failedAt, o.foreign, o.last = time.Time{}, other.Current.Holder, false
		o.until = a.now().Add(other.Current.Lease)
		a.sendElsewhere()
	default:
		o.failedAt, o.foreign = a.now(), store.Holder{}
		a.services.Observer.StoreFailed("claim")
	}
}

// takeOver continues from the stored record.
func (a *actor) takeOver(m claimed) {
	o, before := &a.own, m.claim.Before
	if o.lease != nil {
		o.lease.Let()
	}
	mine := before.Holder.Same(a.services.Holder) && o.held.Key != "" && before.Epoch == o.held.Epoch
	o.held, o.lease = m.claim.Held, a.services.Keep(m.claim, m.started)
	if !mine {
		a.record = a.merged(before)
		a.earlier.load(m.claim.Turns, a.now())
	}
	o.changes, o.last = nil, true
	o.saved = before.Version
	a.record.Version = max(a.record.Version, before.Version)
	a.apply(Event{Reset: a.registry.resetToken()})
	a.persist()
}

// merged is the stored record with what happened here while nobody owned it.
func (a *actor) merged(before store.Entry) Record {
	if len(before.Value) == 0 {
		return a.record
	}
	record, err := DecodeRecord(before.Value, a.now())
	if err != nil {
		a.log().Warn("The stored record cannot be read; the session starts anew", "error", err)
		return a.record
	}
	// That the store knows this process as the owner does not mean that the record
	// is its own: the answer to an earlier claim may have been lost.
	if !before.Holder.Same(a.services.Holder) || a.link == nil || !record.Anchor.on(a.link.generation) {
		record = Apply(record, Event{Moved: true}, a.now())
	}
	// Attempts are numbered by their record: those of a time without the stored one
	// get numbers of it, in order. Otherwise a completion from then would keep the
	// strikes of all that is sent next from counting.
	sent := Event{Sent: &Sent{record.Account, record.Model}}
	for _, c := range a.own.changes {
		record = Apply(record, sent, c.at)
		record = Apply(record, c.event.numbered(record.Health.Sequence), c.at)
	}
	for _, f := range a.flights {
		if f.dispatches == 0 {
			continue
		}
		record = Apply(record, sent, f.sent)
		f.sequence = record.Health.Sequence
		if f.probe {
			record = a.keepProbe(record, f)
		}
	}
	return record
}

// numbered is the event of an attempt under another number.
func (e Event) numbered(sequence int64) Event {
	switch {
	case e.Completed != nil:
		completed := *e.Completed
		completed.Sequence = sequence
		e.Completed = &completed
	case e.Struck != nil:
		struck := *e.Struck
		struck.Sequence = sequence
		e.Struck = &struck
	}
	return e
}

// recordState is what is known of the record that a turn builds on.
type recordState uint8

const (
	recordKnown recordState = iota
	recordAwaited
	recordUnknown
)

// known says whether a turn can be judged. A turn that can do without the record
// waits for it a moment at most, and not at all while the store fails; any other
// waits as long as for an account.
func (a *actor) known(f *flight) recordState {
	o, now := &a.own, a.now()
	if !o.kept || o.valid() {
		return recordKnown
	}
	if a.needsNoRecord(f) {
		if !o.claiming || !o.failedAt.IsZero() || !a.services.Writer.Healthy() || now.Sub(f.submitted) >= claimWait {
			return recordKnown
		}
		return recordAwaited
	}
	if o.foreign.Pod != "" || a.closing || now.Sub(f.submitted) >= f.turn.Limits.AdmissionWait {
		return recordUnknown
	}
	a.claim()
	if o.valid() { // a store in this process
		return recordKnown
	}
	return recordAwaited
}

// needsNoRecord says whether a turn may be sent without the record: it is whole,
// or it names a response that is known here, and this process owned the key last,
// so that it also knows whether the same turn was sent before. What another owner
// has sent is not sent again for not knowing it; where its response lived on a
// socket of that owner, it cannot be, and its client hears so at once.
func (a *actor) needsNoRecord(f *flight) bool {
	if f.turn.Keyed {
		return false
	}
	facts, owner := &f.turn.Facts, &f.turn.Owner
	if facts.PreviousResponseID != "" {
		gone := !owner.Stored && upstream.AnchorScope(f.turn.Runtime.Bundle.Pool.Provider.Type) == upstream.ScopeConnection
		return owner.Known && (a.own.last || gone)
	}
	return facts.Input.SelfContained()
}

// sendElsewhere tells the turns that may go there who owns the key.
func (a *actor) sendElsewhere() {
	if a.own.foreign.Address == "" {
		return
	}
	stay := a.arriving[:0]
	for _, f := range a.arriving {
		if f.turn.Stay {
			stay = append(stay, f)
			continue
		}
		f.turn.Out.move(a.own.foreign.Address)
		a.dismiss(f, ownedElsewhere(a.own.until.Sub(a.now())))
	}
	a.arriving = stay
}

// fenced: another replica owns the key, or the store has lost it. What was known
// here may be old; what runs goes on and publishes nothing.
func (a *actor) fenced(m fenced) {
	o := &a.own
	if o.held != m.held {
		return
	}
	a.log().Info("The key of this session belongs to another proxy now", "holder", m.current.Holder.Pod)
	a.services.Observer.Fenced()
	a.services.heard(m.current)
	if o.lease != nil {
		o.lease.Let()
	}
	o.held, o.lease = store.Held{}, nil
	if m.current.Holder == (store.Holder{}) {
		return // the store lost it; the next turn claims it again, with what is known here
	}
	o.last = false
	a.record, a.earlier = Record{Version: a.record.Version}, earlierTurns{}
	if a.link != nil {
		a.leave(a.link, time.Time{})
	}
}

// persist hands a changed record to the store. Nothing waits for it.
func (a *actor) persist() {
	a.show()
	o := &a.own
	if !o.valid() || a.record.Version == o.saved {
		return
	}
	o.saved = a.record.Version
	a.services.Writer.Save(o.held, a.record.Version, EncodeRecord(a.record), a.recordLife())
}

// recordLife is how long a record is kept when nobody touches it: as long as an
// agent may think between two turns, and as long as what it knows of failures
// counts.
func (a *actor) recordLife() time.Duration {
	return max(minRecordLife, a.policy.Life, a.policy.Retain)
}

const minRecordLife = time.Hour

// giveUp releases the key when the session ends.
func (a *actor) giveUp() {
	o := &a.own
	if o.lease == nil {
		return
	}
	a.persist()
	o.lease.Let()
	a.services.Writer.Release(o.held)
	o.held, o.lease = store.Held{}, nil
}

// unknownRecord says why a turn that needs the record cannot have it.
func (a *actor) unknownRecord() *failure.Failure {
	if a.own.foreign.Pod != "" {
		return ownedElsewhere(a.own.until.Sub(a.now()))
	}
	return storeUnavailable()
}

func storeUnavailable() *failure.Failure {
	return failure.New(failure.StoreUnavailable,
		"The store that knows this conversation does not answer; retry later, or send the whole conversation.", failure.Reason("store"))
}

func ownedElsewhere(after time.Duration) *failure.Failure {
	return failure.New(failure.InstanceMismatch,
		"Another proxy holds this conversation; send the request again.", failure.Reason("owner"), failure.After(max(after, time.Second)))
}
