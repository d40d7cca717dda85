package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// origin is the upstream of all three paths: the Responses API over HTTP and
// WebSocket, TLS on both, and nothing more than the measurement needs. The
// scripted upstream of test/upstream checks and records each request, and would
// use more CPU than what is measured.
type origin struct {
	pacer    *pacer
	upgrader websocket.Upgrader
	ids      atomic.Int64

	sockets, requests, anchored, broken atomic.Int64
}

// originStats is what its control port tells.
type originStats struct {
	// Sockets are open ones; the others count since the last reset.
	Sockets  int64 `json:"sockets"`
	Requests int64 `json:"requests"`
	Anchored int64 `json:"anchored"`
	Broken   int64 `json:"broken"`
	Sent     int64 `json:"sent"`
}

// runOrigin serves until stdin ends, which is when its parent does.
func runOrigin(ctx context.Context, args []string) error {
	f := flag.NewFlagSet(roleOrigin, flag.ContinueOnError)
	cert := f.String("cert", "", "certificate `file`")
	key := f.String("key", "", "key `file`")
	rate := f.Float64("rate", 5, "events a second of each paced stream")
	if err := f.Parse(args); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(*cert, *key)
	if err != nil {
		return fmt.Errorf("loading the certificate: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var lc net.ListenConfig
	data, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	control, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	o := &origin{pacer: newPacer(*rate)}
	go o.pacer.run(ctx)
	failed := make(chan error, 2)
	go func() { failed <- (&http.Server{Handler: o.control(), ReadHeaderTimeout: time.Minute}).Serve(control) }()
	go func() {
		s := &http.Server{Handler: o, ReadHeaderTimeout: time.Minute}
		failed <- s.Serve(tls.NewListener(data, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS13}))
	}()
	fmt.Println(data.Addr(), control.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// control serves what the bench asks between its measurements.
func (o *origin) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(originStats{Sockets: o.sockets.Load(), Requests: o.requests.Load(), Anchored: o.anchored.Load(),
			Broken: o.broken.Load(), Sent: o.pacer.sent.Load()})
	})
	mux.HandleFunc("POST /reset", func(http.ResponseWriter, *http.Request) {
		for _, n := range []*atomic.Int64{&o.requests, &o.anchored, &o.broken, &o.pacer.sent} {
			n.Store(0)
		}
	})
	mux.HandleFunc("POST /finish", func(http.ResponseWriter, *http.Request) { o.pacer.finish.Store(true) })
	mux.HandleFunc("POST /rate", func(w http.ResponseWriter, r *http.Request) {
		rate, err := strconv.ParseFloat(r.FormValue("per"), 64)
		if err != nil || rate <= 0 {
			http.Error(w, "per: events a second of a stream", http.StatusBadRequest)
			return
		}
		o.pacer.setRate(rate)
	})
	return mux
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if websocket.IsWebSocketUpgrade(r) {
		o.socket(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost {
		http.Error(w, "POST a request", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	o.answer(&sseSink{w, http.NewResponseController(w)}, body)
}

func (o *origin) socket(w http.ResponseWriter, r *http.Request) {
	conn, err := o.upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	o.sockets.Add(1)
	defer func() {
		o.sockets.Add(-1)
		_ = conn.Close()
	}()
	to := &socketSink{conn}
	var turn sync.Mutex // a client may have an answer's end, and ask again, before its writer has returned
	for {
		_, body, err := conn.ReadMessage()
		if err != nil {
			return
		}
		// Reading goes on meanwhile: that is what answers pings.
		go func() {
			turn.Lock()
			defer turn.Unlock()
			o.answer(to, body)
		}()
	}
}

// answer plays one response.
func (o *origin) answer(to sink, body []byte) {
	o.requests.Add(1)
	if bytes.Contains(body, []byte(`"previous_response_id":"`)) {
		o.anchored.Add(1)
	}
	a := &answer{to: to, id: fmt.Sprintf("resp_%032x", o.ids.Add(1))}
	a.response("response.created", "in_progress", "")
	a.response("response.in_progress", "in_progress", "")
	a.send("response.output_item.added", `"output_index":0,"item":{"type":"message","id":"msg_0123456789abcdef0123456789abcdef","status":"in_progress","role":"assistant","content":[]}`)
	if bytes.Contains(body, []byte(`"`+modelPaced+`"`)) && a.err == nil {
		s := &paced{to: to, sequence: firstSequence, done: make(chan struct{})}
		o.pacer.add(s)
		<-s.done
		a.sequence = lastSequence
	} else {
		for range 3 {
			a.send(eventDelta, `"item_id":"msg_0123456789abcdef0123456789abcdef","output_index":0,"content_index":0,"delta":"Certainly.","logprobs":[]`)
		}
	}
	a.send("response.output_item.done", `"output_index":0,"item":`+itemDone)
	a.response("response.completed", "completed", itemDone)
	if a.err != nil {
		o.broken.Add(1)
	}
}

// answer is one response on its way out; it stops at the first error.
type answer struct {
	to       sink
	id       string
	sequence int
	err      error
}

func (a *answer) response(name, status, output string) {
	a.send(name, `"response":{"id":"`+a.id+`","object":"response","status":"`+status+`","model":"bench","output":[`+output+`]}`)
}

func (a *answer) send(name, members string) {
	if a.err != nil {
		return
	}
	data := fmt.Sprintf(`{"type":"%s","sequence_number":%d,%s}`, name, a.sequence, members)
	a.sequence++
	a.err = a.to.event([]byte("event: "+name+"\ndata: "+data+"\n\n"), []byte(data))
}

// errOrigin is a control request that was not answered as it should.
var errOrigin = errors.New("the load origin did not answer")

// originProcess is the origin as its parent sees it.
type originProcess struct {
	*process
	data, controlURL string
	stdin            io.Closer
}

func (o *originProcess) call(ctx context.Context, method, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, o.controlURL+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", errOrigin, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s", errOrigin, resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

func (o *originProcess) stats(ctx context.Context) (originStats, error) {
	var s originStats
	return s, o.call(ctx, http.MethodGet, "/stats", &s)
}

func (o *originProcess) reset(ctx context.Context) error {
	return o.call(ctx, http.MethodPost, "/reset", nil)
}

func (o *originProcess) finish(ctx context.Context) error {
	return o.call(ctx, http.MethodPost, "/finish", nil)
}

func (o *originProcess) rate(ctx context.Context, per float64) error {
	return o.call(ctx, http.MethodPost, "/rate?per="+strconv.FormatFloat(per, 'f', -1, 64), nil)
}
