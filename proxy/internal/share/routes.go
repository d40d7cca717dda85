package share

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/circuit"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// Circuits are the route breakers of this replica; circuit.Routes is one.
type Circuits interface {
	// Snapshot lists the circuits that are not closed.
	Snapshot() []circuit.Entry
	// Restore opens what an earlier process left open.
	Restore(entries []circuit.Entry)
	// Hint makes circuits careful for a while that are open at a sibling.
	Hint(entries []circuit.Entry)
}

// Settings of Routes.
const (
	// routeStart is for how long after its start a process takes over what was open
	// before: later on its own experience counts, and what siblings say is a hint.
	routeStart = 10 * time.Second
	// routeGrace is how long a note outlives the open time that it is about, so that
	// a circuit that is due for a probe is not taken for a closed one.
	routeGrace = time.Minute
	// routeLife bounds what is believed of an open time; Restore cuts it to the
	// longest of the policy.
	routeLife = 24 * time.Hour
)

// routeNote is one circuit of one replica, as it is told. How long it is open is
// told by the life of the note, routeGrace included.
type routeNote struct {
	Key    string `json:"key"`
	State  string `json:"state"`
	Opened int    `json:"opened"`
}

// Routes is the Source of route circuits. Each replica has its own and tells them
// under its own name. A new process starts with what is open anywhere; while it
// runs, an open circuit of a sibling is a hint.
type Routes struct {
	circuits Circuits
	me       string
	started  time.Time
	restored bool
	// told are the notes of this replica by name, until they need not be there any
	// more; seen are the values of the siblings' notes.
	told map[string]toldRoute
	seen map[string]string
}

type toldRoute struct {
	note routeNote
	ends time.Time
}

// NewRoutes makes the source; the process begins now. me is text without spaces
// that names this process like no other, at most 40 bytes.
func NewRoutes(c Circuits, me string, now time.Time) *Routes {
	return &Routes{circuits: c, me: me, started: now, told: map[string]toldRoute{}, seen: map[string]string{}}
}

// Board is a Source's.
func (r *Routes) Board() string { return "routes" }

// Learn is a Source's.
func (r *Routes) Learn(items []Item, now time.Time) {
	open := map[string]circuit.Entry{} // by key, the one that is open longest
	var news []circuit.Entry
	seen := map[string]string{}
	for _, item := range items {
		e, ok := entryOf(item, now)
		if !ok || strings.HasSuffix(item.Name, "@"+r.me) {
			continue
		}
		seen[item.Name] = string(item.Value)
		if r.seen[item.Name] != seen[item.Name] {
			news = append(news, e)
		}
		if known, ok := open[e.Key]; !ok || e.Until.After(known.Until) {
			open[e.Key] = e
		}
	}
	r.seen = seen
	if !r.restored && now.Sub(r.started) < routeStart {
		all := make([]circuit.Entry, 0, len(open))
		for _, e := range open {
			all = append(all, e)
		}
		r.circuits.Restore(all)
	} else if len(news) > 0 {
		r.circuits.Hint(news)
	}
	r.restored = true
}

// entryOf reads a note about a circuit that is not closed.
func entryOf(item Item, now time.Time) (circuit.Entry, bool) {
	var n routeNote
	if json.Unmarshal(item.Value, &n) != nil || n.State != circuit.Open.String() && n.State != circuit.HalfOpen.String() || n.Opened < 0 {
		return circuit.Entry{}, false
	}
	if _, ok := circuit.ParseKey(n.Key); !ok {
		return circuit.Entry{}, false
	}
	left := min(item.Left, routeLife) - routeGrace
	return circuit.Entry{Key: n.Key, State: n.State, Until: now.Add(left), Opened: n.Opened}, true
}

// Local is a Source's.
func (r *Routes) Local(now time.Time) []Item {
	open := map[string]bool{}
	for _, e := range r.circuits.Snapshot() {
		name := routeName(e.Key, r.me)
		open[name] = true
		// Until of the past means that a probe is due.
		ends := later(e.Until, now).Add(routeGrace)
		r.told[name] = toldRoute{routeNote{e.Key, e.State, e.Opened}, ends}
	}
	var items []Item
	for name, t := range r.told {
		if !open[name] && t.note.State != circuit.Closed.String() {
			// What is on the board goes by being overwritten.
			t = toldRoute{routeNote{Key: t.note.Key, State: circuit.Closed.String()}, later(t.ends, now.Add(routeGrace))}
			r.told[name] = t
		}
		value, err := json.Marshal(t.note)
		if err != nil || !t.ends.After(now) {
			delete(r.told, name)
			continue
		}
		items = append(items, Item{Name: name, Value: value, Left: t.ends.Sub(now)})
	}
	return items
}

// routeName names a circuit of a replica; a key that is too long for it is told by
// its digest.
func routeName(key, me string) string {
	const most = store.MaxNoteName
	if name := key + "@" + me; len(name) <= most {
		return name
	}
	digest := sha256.Sum256([]byte(key))
	return hex.EncodeToString(digest[:16]) + "@" + me
}
