package conversation

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Session drives a client and tells what happens, request by request.
type Session struct {
	Client *Client
	Ledger *Ledger
	Out    io.Writer

	requests int
	tools    int
	totals   Totals
}

// Totals are sums over a session.
type Totals struct {
	// ClientBytes is what the client sent, UpstreamBytes what left the proxy.
	ClientBytes, UpstreamBytes int
	// Requests of the client, Anchored dispatches among those that answered them.
	Requests, Anchored int
	// Accounts that answered, in order of first use.
	Accounts []string
	// Sockets are upstream connections used.
	Sockets map[int64]bool
}

// Saved is the share of the client's bytes that did not have to be sent on, in
// percent; it is negative if more was sent.
func (t Totals) Saved() int {
	if t.ClientBytes == 0 {
		return 0
	}
	return 100 - 100*t.UpstreamBytes/t.ClientBytes
}

// Totals so far.
func (s *Session) Totals() Totals { return s.totals }

// Say sends what a user says and goes on until the model asks for no more tools.
func (s *Session) Say(ctx context.Context, text string) error {
	s.Client.User(text)
	fmt.Fprintf(s.Out, "  user: %s\n", text)
	for {
		answer, err := s.Client.Send(ctx)
		s.requests++
		s.totals.Requests++
		s.totals.ClientBytes += answer.SentBytes
		if reportErr := s.report(ctx, answer); err == nil {
			err = reportErr
		}
		if err != nil {
			return fmt.Errorf("request %d: %w", s.requests, err)
		}
		if len(answer.Calls) == 0 {
			fmt.Fprintf(s.Out, "  model: %s\n", answer.Text)
			return nil
		}
		for _, call := range answer.Calls {
			s.tools++
			s.Client.ToolOutput(call, FileListing(s.tools))
		}
	}
}

// report prints one line for the client's side and one for each dispatch.
func (s *Session) report(ctx context.Context, a Answer) error {
	fmt.Fprintf(s.Out, "    request %d  client sent %8s in %2d items; streamed back: %s (first after %d ms)\n",
		s.requests, size(a.SentBytes), a.SentItems, summary(a.Events), a.FirstEvent.Milliseconds())
	dispatches, err := s.Ledger.New(ctx)
	if err != nil {
		return err
	}
	if s.totals.Sockets == nil {
		s.totals.Sockets = map[int64]bool{}
	}
	for _, d := range dispatches {
		s.add(d)
		how := "in full"
		if d.Anchor != "" {
			how = "anchored, only what is new"
		}
		if d.Outcome == "refused" || d.Outcome == "failed" {
			how += fmt.Sprintf("; %s with %d %s", d.Outcome, d.Status, d.Code)
		}
		fmt.Fprintf(s.Out, "               upstream got %7s in %2d items on account %s, connection %d: %s\n",
			size(d.WireBytes), d.InputItems, d.Account, d.Connection, how)
	}
	return nil
}

func (s *Session) add(d Dispatch) {
	s.totals.UpstreamBytes += d.WireBytes
	s.totals.Sockets[d.Connection] = true
	if d.Outcome != "completed" {
		return
	}
	if d.Anchor != "" {
		s.totals.Anchored++
	}
	if n := len(s.totals.Accounts); n == 0 || s.totals.Accounts[n-1] != d.Account {
		s.totals.Accounts = append(s.totals.Accounts, d.Account)
	}
}

// summary shortens a list of events: neighbours of one name become one.
func summary(events []string) string {
	var out []string
	for i := 0; i < len(events); {
		j := i
		for j < len(events) && events[j] == events[i] {
			j++
		}
		name := strings.TrimPrefix(events[i], "response.")
		if j-i > 1 {
			name = fmt.Sprintf("%d × %s", j-i, name)
		}
		out = append(out, name)
		i = j
	}
	if len(out) == 0 {
		return "nothing"
	}
	if len(out) > 4 {
		out = append(append([]string{}, out[0], "…"), out[len(out)-2:]...)
	}
	return fmt.Sprintf("%d events (%s)", len(events), strings.Join(out, ", "))
}

func size(bytes int) string {
	if bytes < 1000 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f kB", float64(bytes)/1000)
}

// Check prints the totals and fails if the proxy did not do what it is for:
// every request after the first anchored, and less sent than received.
func (s *Session) Check() error {
	t := s.totals
	fmt.Fprintf(s.Out, "  %d requests: the client sent %s, upstream got %s over %d connection(s): %d %% saved, %d anchored\n",
		t.Requests, size(t.ClientBytes), size(t.UpstreamBytes), len(t.Sockets), t.Saved(), t.Anchored)
	if t.Anchored < t.Requests-1 {
		return fmt.Errorf("%d of %d requests were anchored, want all but the first", t.Anchored, t.Requests)
	}
	if t.Saved() <= 0 {
		return errors.New("nothing was saved")
	}
	return nil
}

// NewSessionID is a random id in the form Codex uses for its sessions.
func NewSessionID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see its documentation
	b[6], b[8] = b[6]&0x0f|0x70, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
