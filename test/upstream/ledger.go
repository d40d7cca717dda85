package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"
	"time"
)

// Outcome is how a dispatch ended, as the server saw it.
type Outcome string

// Outcomes.
const (
	OutcomeQueued     Outcome = "queued"     // behind another response of its lane
	OutcomeRunning    Outcome = "running"    //
	OutcomeCompleted  Outcome = "completed"  // response.completed sent
	OutcomeFailed     Outcome = "failed"     // response.failed, or an error after response.created
	OutcomeIncomplete Outcome = "incomplete" // response.incomplete sent
	OutcomeRefused    Outcome = "refused"    // an error before response.created: nothing was executed
	OutcomeCancelled  Outcome = "cancelled"  // the client left first
	OutcomeReset      Outcome = "reset"      // a scripted RST
	OutcomeFin        Outcome = "fin"        // a scripted end of the connection
	OutcomeClosed     Outcome = "closed"     // a scripted close frame
	OutcomeMuted      Outcome = "muted"      // silence until the client left
	OutcomeUnfinished Outcome = "unfinished" // no terminal event, the stream ended or fell silent
	OutcomeGarbled    Outcome = "garbled"    // something that is no answer
)

// Dispatch is one response.create that reached the server.
type Dispatch struct {
	Kind       string    `json:"kind"` // "dispatch"
	Seq        int64     `json:"seq"`
	Time       time.Time `json:"time"`
	Ended      time.Time `json:"ended,omitzero"`
	Account    string    `json:"account"`
	Transport  string    `json:"transport"`
	Connection int64     `json:"connection"`
	Client     string    `json:"client"`
	Path       string    `json:"path"`
	Lane       string    `json:"lane,omitempty"`
	// Session is the thread id, or else prompt cache key or session id.
	Session    string `json:"session,omitempty"`
	ResponseID string `json:"responseID,omitempty"`
	// Anchor is previous_response_id; AnchorResolved says whether it was known
	// in the scope of its mode.
	Anchor         string `json:"anchor,omitempty"`
	AnchorResolved bool   `json:"anchorResolved,omitempty"`
	// Turn is the number of the answer asked for, within its conversation.
	Turn int `json:"turn,omitempty"`
	// Items are the digests of the input items as they came (canonical JSON).
	Items      []string `json:"items"`
	InputItems int      `json:"inputItems"`
	// LogicalItems and LogicalDigest cover resolved history and input; the
	// digest looks at the meaning of items, so that an anchored and a full
	// request for the same turn are equal.
	LogicalItems  int    `json:"logicalItems,omitempty"`
	LogicalDigest string `json:"logicalDigest,omitempty"`
	// WireBytes came in: the compressed body over HTTP, the message over a
	// WebSocket (see Connection.BytesIn for compressed sockets).
	WireBytes  int    `json:"wireBytes"`
	BodyBytes  int    `json:"bodyBytes"`
	BodyDigest string `json:"bodyDigest"`
	Body       []byte `json:"-"` // with Options.KeepBodies
	Model      string `json:"model"`
	Store      bool   `json:"store"`
	Stream     bool   `json:"stream"`
	Generate   bool   `json:"generate"`
	// Headers of the request or of the upgrade, lower case, without
	// credentials.
	Headers map[string]string `json:"headers,omitempty"`

	Rule    string  `json:"rule,omitempty"`
	Fault   string  `json:"fault,omitempty"`
	Outcome Outcome `json:"outcome"`
	Status  int     `json:"status,omitempty"`
	Code    string  `json:"code,omitempty"`
	// Events sent, and the SHA-256 over their payloads one after the other;
	// for an answer that is one JSON body, that body.
	Events       int    `json:"events"`
	EventsDigest string `json:"eventsDigest,omitempty"`
}

// Executed says whether the service may have run the model for it: anything
// but a clear refusal.
func (d Dispatch) Executed() bool {
	return d.Generate && d.Outcome != OutcomeRefused && d.Outcome != OutcomeQueued
}

// ConnectionRecord is the life of one TCP connection.
type ConnectionRecord struct {
	Kind      string    `json:"kind"` // "connection"
	Seq       int64     `json:"seq"`
	Number    int64     `json:"connection"`
	Client    string    `json:"client"`
	Transport string    `json:"transport"` // ws once upgraded
	Account   string    `json:"account,omitempty"`
	Path      string    `json:"path,omitempty"`
	Opened    time.Time `json:"opened"`
	Closed    time.Time `json:"closed,omitzero"`
	// CloseCode of a WebSocket: what came or was sent; 1006 without a
	// closing handshake. ClosedBy is peer or server.
	CloseCode int    `json:"closeCode,omitempty"`
	ClosedBy  string `json:"closedBy,omitempty"`
	// Bytes of the TCP connection, after TLS and compression.
	BytesIn  int64 `json:"bytesIn"`
	BytesOut int64 `json:"bytesOut"`
	Requests int   `json:"requests"`
}

// Request is any other request: models, usage, tokens, pass-through, refused
// upgrades, and frames of a socket that are no response.create.
type Request struct {
	Kind        string            `json:"kind"` // "request"
	Seq         int64             `json:"seq"`
	Time        time.Time         `json:"time"`
	Route       string            `json:"route"`
	Method      string            `json:"method"`
	Path        string            `json:"path"`
	Account     string            `json:"account,omitempty"`
	Connection  int64             `json:"connection"`
	Client      string            `json:"client"`
	Status      int               `json:"status"`
	Code        string            `json:"code,omitempty"`
	ContentType string            `json:"contentType,omitempty"`
	BodyBytes   int               `json:"bodyBytes"`
	BodyDigest  string            `json:"bodyDigest,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Body        []byte            `json:"-"` // with Options.KeepBodies; never of the issuer
}

// Ledger is the record of all that reached the server. Its methods return
// copies and may be called at any time.
type Ledger struct {
	mu          sync.Mutex
	seq         int64
	dispatches  []*Dispatch
	connections []*ConnectionRecord
	requests    []*Request
	changed     chan struct{} // closed and replaced on every change
}

func newLedger() *Ledger { return &Ledger{changed: make(chan struct{})} }

// update runs f under the lock and wakes who waits.
func (l *Ledger) update(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Ledger) addDispatch(d *Dispatch) {
	l.update(func() {
		l.seq++
		d.Kind, d.Seq = "dispatch", l.seq
		l.dispatches = append(l.dispatches, d)
	})
}

func (l *Ledger) addConnection(c *ConnectionRecord) {
	l.update(func() {
		l.seq++
		c.Kind, c.Seq = "connection", l.seq
		l.connections = append(l.connections, c)
	})
}

func (l *Ledger) addRequest(r *Request) {
	l.update(func() {
		l.seq++
		r.Kind, r.Seq = "request", l.seq
		l.requests = append(l.requests, r)
	})
}

// Dispatches in the order they arrived.
func (l *Ledger) Dispatches() []Dispatch { return snapshot(l, &l.dispatches) }

// Connections in the order they were opened.
func (l *Ledger) Connections() []ConnectionRecord { return snapshot(l, &l.connections) }

// Requests other than dispatches, in the order they were answered.
func (l *Ledger) Requests() []Request { return snapshot(l, &l.requests) }

func snapshot[T any](l *Ledger, list *[]*T) []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]T, len(*list))
	for i, p := range *list {
		out[i] = *p
	}
	return out
}

// Clear forgets everything but connections that are still open.
func (l *Ledger) Clear() {
	l.update(func() {
		l.dispatches, l.requests = nil, nil
		l.connections = slices.DeleteFunc(l.connections, func(c *ConnectionRecord) bool { return !c.Closed.IsZero() })
	})
}

// Duplicates returns the dispatches that asked for the same turn of the same
// session more than once and may have been executed each time: what a proxy
// must never do. Prewarms and clear refusals do not count.
func (l *Ledger) Duplicates() [][]Dispatch {
	groups := map[string][]Dispatch{}
	for _, d := range l.Dispatches() {
		if d.Executed() && d.LogicalDigest != "" {
			k := d.Session + "\x00" + d.LogicalDigest
			groups[k] = append(groups[k], d)
		}
	}
	var out [][]Dispatch
	for _, g := range groups {
		if len(g) > 1 {
			out = append(out, g)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i][0].Seq < out[j][0].Seq })
	return out
}

// Wait returns as soon as done accepts the dispatches, or with ctx's error.
func (l *Ledger) Wait(ctx context.Context, done func([]Dispatch) bool) error {
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if done(l.Dispatches()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the ledger: %w", context.Cause(ctx))
		}
	}
}

// WaitEnded waits until at least n dispatches have ended.
func (l *Ledger) WaitEnded(ctx context.Context, n int) error {
	return l.Wait(ctx, func(ds []Dispatch) bool {
		ended := 0
		for _, d := range ds {
			if !d.Ended.IsZero() {
				ended++
			}
		}
		return ended >= n
	})
}

// WriteJSONL writes every record as one line of JSON, in order of arrival.
func (l *Ledger) WriteJSONL(w io.Writer) error {
	type line struct {
		seq int64
		v   any
	}
	var lines []line
	for _, d := range l.Dispatches() {
		lines = append(lines, line{d.Seq, d})
	}
	for _, c := range l.Connections() {
		lines = append(lines, line{c.Seq, c})
	}
	for _, r := range l.Requests() {
		lines = append(lines, line{r.Seq, r})
	}
	sort.Slice(lines, func(i, j int) bool { return lines[i].seq < lines[j].seq })
	buf := bufio.NewWriter(w)
	enc := json.NewEncoder(buf)
	for _, ln := range lines {
		if err := enc.Encode(ln.v); err != nil {
			return fmt.Errorf("writing the ledger: %w", err)
		}
	}
	if err := buf.Flush(); err != nil {
		return fmt.Errorf("writing the ledger: %w", err)
	}
	return nil
}
