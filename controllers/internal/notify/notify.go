// Package notify tells people what they must know through Kubernetes events,
// each thing once in a while.
package notify

import (
	"cmp"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// quiet is how long a repetition of the same event is held back.
	quiet = 5 * time.Minute
	// maxRemembered bounds the memory of sent events; when it is full, the
	// expired ones go first.
	maxRemembered = 4096
	// maxNote is the limit of the events API for a note.
	maxNote = 1024
)

// Event is one thing to tell. Reason and Action are stable words.
type Event struct {
	Warning bool
	Reason  string
	Action  string
	Note    string
	// Topic tells repetitions from news where the note holds a number; empty =
	// the note does.
	Topic string
}

// Recorder sends events, dropping repetitions. It is safe for concurrent use.
type Recorder struct {
	events events.EventRecorder
	clock  clock.PassiveClock

	mu   sync.Mutex // guards sent
	sent map[sentKey]time.Time
}

type sentKey struct {
	uid           types.UID
	reason, topic string
}

// NewRecorder returns a Recorder that sends through r.
func NewRecorder(r events.EventRecorder, c clock.PassiveClock) *Recorder {
	return &Recorder{events: r, clock: c, sent: map[sentKey]time.Time{}}
}

// Send sends the events about obj that were not sent lately.
func (r *Recorder) Send(obj client.Object, list ...Event) {
	for _, e := range list {
		if !r.due(sentKey{obj.GetUID(), e.Reason, cmp.Or(e.Topic, e.Note)}) {
			continue
		}
		kind := corev1.EventTypeNormal
		if e.Warning {
			kind = corev1.EventTypeWarning
		}
		r.events.Eventf(obj, nil, kind, e.Reason, e.Action, "%s", cut(e.Note))
	}
}

func (r *Recorder) due(key sentKey) bool {
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.sent[key]; ok && now.Sub(at) < quiet {
		return false
	}
	if len(r.sent) >= maxRemembered {
		for k, at := range r.sent {
			if now.Sub(at) >= quiet {
				delete(r.sent, k)
			}
		}
	}
	if len(r.sent) >= maxRemembered {
		clear(r.sent) // a repetition is better than a process that grows
	}
	r.sent[key] = now
	return true
}

func cut(note string) string {
	if len(note) > maxNote {
		return note[:maxNote]
	}
	return note
}
