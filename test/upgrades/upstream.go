package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/causeway-dev/causeway/hack/conversation"
	"github.com/causeway-dev/causeway/test/upstream"
)

// scripted is the upstream's side door for tests.
type scripted struct {
	url  string
	http *http.Client
}

func newUpstream(s settings) (*scripted, error) {
	client, err := conversation.HTTPClient(s.ca, s.serverName)
	if err != nil {
		return nil, fmt.Errorf("reaching the upstream: %w", err)
	}
	return &scripted{s.upstream, client}, nil
}

func (u *scripted) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, u.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := u.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s %s", method, path, res.Status, raw)
	}
	return raw, err
}

// script makes streams of one event a second, and short answers to the rest.
func (u *scripted) script(ctx context.Context, seconds int) error {
	script := upstream.Script{Rules: []upstream.Rule{{Match: upstream.Match{Model: modelQuick},
		Respond: &upstream.Respond{Text: "a short answer", Delay: upstream.Duration(50 * time.Millisecond)}}}}
	for part := 1; part <= streamLengths; part++ {
		script.Rules = append(script.Rules, upstream.Rule{Match: upstream.Match{Model: slow(part)},
			Respond: &upstream.Respond{Fill: upstream.Fill{Deltas: deltas(seconds, part), Bytes: 40}, EventDelay: upstream.Duration(time.Second)}})
	}
	raw, err := json.Marshal(script)
	if err != nil {
		return err
	}
	_, err = u.call(ctx, http.MethodPost, "/_script", raw)
	return err
}

// duplicates counts turns that reached the upstream more than once.
func (u *scripted) duplicates(ctx context.Context) (int, error) {
	raw, err := u.call(ctx, http.MethodGet, "/_duplicates", nil)
	if err != nil {
		return 0, err
	}
	var groups []json.RawMessage
	err = json.Unmarshal(raw, &groups)
	return len(groups), err
}
