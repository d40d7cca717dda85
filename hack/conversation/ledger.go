package conversation

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Dispatch is one request to the model as the scripted upstream saw it; it is a
// part of the upstream's own ledger entry.
type Dispatch struct {
	Kind       string `json:"kind"`
	Seq        int64  `json:"seq"`
	Account    string `json:"account"`
	Transport  string `json:"transport"`
	Connection int64  `json:"connection"`
	Anchor     string `json:"anchor"`
	InputItems int    `json:"inputItems"`
	WireBytes  int    `json:"wireBytes"`
	Outcome    string `json:"outcome"`
	Status     int    `json:"status"`
	Code       string `json:"code"`
}

// Ledger reads what has reached the scripted upstream.
type Ledger struct {
	URL  string
	HTTP *http.Client

	seen int64
}

// New returns the dispatches since the call before.
func (l *Ledger) New(ctx context.Context) ([]Dispatch, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.URL, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := l.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reading the upstream's ledger: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading the upstream's ledger: %s", resp.Status)
	}
	var fresh []Dispatch
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		var d Dispatch
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			return nil, fmt.Errorf("reading the upstream's ledger: %w", err)
		}
		if d.Kind == "dispatch" && d.Seq > l.seen {
			fresh = append(fresh, d)
		}
	}
	for _, d := range fresh {
		l.seen = max(l.seen, d.Seq)
	}
	return fresh, lines.Err()
}
