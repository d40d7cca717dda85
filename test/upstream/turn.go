package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tidwall/gjson"
)

// turn is one dispatch from arrival to its end.
type turn struct {
	s      *Server
	req    *request
	out    sink
	entry  *Dispatch
	script Script

	conv   *conversation
	comp   *composer
	rule   *Rule
	refund func()

	stopOnce    sync.Once
	interrupted chan struct{} // closed by response.interrupt
	lastSeq     int64         // sequence_number of the newest event sent
	sum         hash.Hash     // over payloads sent
	sent        int           // events sent
	outcome     Outcome
}

// newTurn writes the dispatch to the ledger, before anything else happens.
func (s *Server) newTurn(req *request, out sink) *turn {
	d := &Dispatch{
		Time: req.received, Account: req.account, Transport: req.transport, Connection: req.conn, Client: req.client, Path: req.path,
		Lane: req.lane, Session: req.session, Anchor: req.anchor, InputItems: len(req.input), WireBytes: req.wire,
		BodyBytes: len(req.body), BodyDigest: Digest(req.body), Model: req.model, Store: req.store, Stream: req.stream,
		Generate: req.generate, Headers: safeHeaders(req.headers), Outcome: OutcomeQueued, Items: []string{},
	}
	for _, it := range req.input {
		d.Items = append(d.Items, it.exact)
	}
	if s.opts.KeepBodies {
		d.Body = req.body
	}
	s.ledger.addDispatch(d)
	if n := s.inFlight.Add(1); n > s.peak.Load() {
		s.peak.Store(n)
	}
	return &turn{
		s: s, req: req, out: out, entry: d, script: s.director.get(), interrupted: make(chan struct{}), lastSeq: -1,
		sum: sha256.New(), refund: func() {},
	}
}

// run answers, and returns when the dispatch is over.
func (t *turn) run(ctx context.Context) {
	defer t.end()
	t.entryUpdate(func(d *Dispatch) { d.Outcome = OutcomeRunning })
	refusal := t.prepare()
	if f := t.fault(); f != nil && f.insteadOfAnswer() {
		t.play(ctx, t.inject(t.head(), f))
		return
	}
	if refusal == nil {
		refusal = t.s.quotas.take(t.req)
	}
	if refusal != nil {
		t.refund()
		t.entryUpdate(func(d *Dispatch) { d.Rule, d.Fault = "", "" })
		t.refuse(ctx, refusal)
		return
	}
	ans, err := answerFor(t.script, t.rule, t.req, t.conv, t.comp.ans.id)
	if err != nil {
		t.refuse(ctx, &apiError{status: http.StatusInternalServerError, code: "script_error", typ: "server_error", message: err.Error()})
		return
	}
	t.comp.ans, t.comp.tail = ans, t.tail(ans.id)
	t.entryUpdate(func(d *Dispatch) { d.ResponseID = ans.id })
	steps := t.steps()
	if f := t.fault(); f != nil {
		steps = t.inject(steps, f)
	}
	t.play(ctx, steps)
}

func (t *turn) fault() *Fault {
	if t.rule == nil {
		return nil
	}
	return t.rule.Fault
}

// prepare resolves the anchor, builds the logical input and finds the rule.
func (t *turn) prepare() *apiError {
	past, refusal := t.resolve()
	resolved := t.req.anchor != "" && refusal == nil
	conv, err := past.extend(t.req.input)
	if err == nil {
		err = conv.unanswered()
	}
	if refusal == nil {
		refusal = err
	}
	if conv == nil {
		conv = &conversation{}
	}
	view := *conv
	view.tools = slices.Concat(t.req.tools, conv.tools)
	t.conv = &view
	f := facts{
		account: t.req.account, route: RouteResponses, path: t.req.path, transport: t.req.transport, model: t.req.model,
		session: t.req.session, turn: conv.answers + 1, body: t.req.body, anchored: t.req.anchor != "", anchor: t.req.anchor, prewarm: !t.req.generate,
	}
	t.rule, t.refund = t.s.director.pick(f)
	t.comp = &composer{req: t.req, ans: &answer{id: t.s.nextID(), created: t.req.received.Unix()}, tail: t.tail("")}
	t.entryUpdate(func(d *Dispatch) {
		d.Turn, d.AnchorResolved = f.turn, resolved
		if refusal == nil {
			d.LogicalItems, d.LogicalDigest = conv.items, conv.digest()
		}
		if t.rule != nil {
			d.Rule = t.rule.Name
			if t.rule.Fault != nil {
				d.Fault = t.rule.Fault.Action
			}
		}
	})
	return refusal
}

// resolve finds the conversation an anchor stands for, in the scope of the
// mode.
func (t *turn) resolve() (*conversation, *apiError) {
	if t.req.anchor == "" {
		return nil, nil
	}
	if t.req.socket != nil && t.req.mode == ModePlatform {
		if r := t.req.socket.newest(t.req.anchor); r != nil {
			return r.conv, nil
		}
	}
	if r := t.s.history.find(t.req.account, t.req.anchor); r != nil {
		return r.conv, nil
	}
	err := anchorNotFound(t.req.anchor)
	err.silent = t.req.mode == ModeChatGPT
	return nil, err
}

// tail is what every event of this dispatch ends with.
func (t *turn) tail(id string) object {
	var o object
	if t.req.lane != "" {
		o = append(o, "stream_id", t.req.lane)
	}
	if id != "" && t.req.socket != nil && t.req.mode == ModeChatGPT && !t.script.Connection.OmitResponseID {
		o = append(o, "response_id", id)
	}
	return o
}

// nextID gives every response of this server a name of its own.
func (s *Server) nextID() string { return fmt.Sprintf("%s%04d", s.opts.IDPrefix, s.responses.Add(1)) }

func (t *turn) refuse(ctx context.Context, e *apiError) {
	if e.silent {
		t.play(ctx, []step{{act: t.mute}})
		return
	}
	t.play(ctx, []step{{act: t.refusal(e)}})
}

// refusal answers with an error instead of a response.
func (t *turn) refusal(e *apiError) func(context.Context) error {
	return func(ctx context.Context) error {
		t.entryUpdate(func(d *Dispatch) { d.Status, d.Code = e.status, e.code })
		t.endAs(OutcomeRefused)
		if err := t.out.refuse(ctx, e); err != nil {
			return err
		}
		return errEnded
	}
}

// remember makes the response an anchor. It must happen before the client can
// see the terminal event, for the client may build on it at once.
func (t *turn) remember(withOutput bool) {
	var made []item
	for _, e := range t.comp.events {
		if !withOutput || e.name != "response.output_item.done" {
			continue
		}
		if v, err := decode([]byte(gjson.GetBytes(e.payload, "item").Raw)); err == nil {
			if obj, ok := v.(map[string]any); ok {
				made = append(made, newItem(obj))
			}
		}
	}
	past := *t.conv
	past.tools = past.tools[len(t.req.tools):] // the request's own tools end with it
	conv, err := past.extend(made)
	if err != nil {
		return // a scripted answer that makes no sense cannot be continued
	}
	r := &remembered{id: t.comp.ans.id, account: t.req.account, conv: conv}
	if t.req.socket != nil {
		t.req.socket.remember(t.req.lane, r)
	}
	if t.req.store || t.req.mode == ModeChatGPT {
		t.s.history.put(r)
	}
}

// evict forgets the anchor of a dispatch that failed, as the platform does.
func (t *turn) evict() {
	if t.req.socket != nil && t.req.anchor != "" && t.req.mode == ModePlatform {
		t.req.socket.evict(t.req.lane, t.req.anchor)
	}
}

// end closes the entry in the ledger.
func (t *turn) end() {
	t.s.inFlight.Add(-1)
	t.commit(t.outcome)
	t.entryUpdate(func(d *Dispatch) { d.Ended = time.Now() })
	d := t.entry
	t.s.opts.Log.Info("Answered", "account", d.Account, "transport", d.Transport, "connection", d.Connection, "anchored", d.Anchor != "",
		"items", d.InputItems, "bytes", d.WireBytes, "outcome", string(t.outcome))
}

// commit writes the outcome to the ledger. Where the client can know the end
// by what it receives, the ledger knows it before.
func (t *turn) commit(o Outcome) {
	t.outcome = o
	if o == OutcomeRefused || o == OutcomeFailed {
		t.evict()
	}
	t.entryUpdate(func(d *Dispatch) {
		d.Outcome, d.Events = o, t.sent
		if t.sent > 0 {
			d.EventsDigest = hex.EncodeToString(t.sum.Sum(nil))
		}
	})
}

// answers says whether this dispatch makes the response of that id.
func (t *turn) answers(id string) bool {
	match := false
	t.entryUpdate(func(d *Dispatch) { match = d.ResponseID != "" && d.ResponseID == id })
	return match
}

func (t *turn) entryUpdate(f func(*Dispatch)) {
	t.s.ledger.update(func() { f(t.entry) })
}
