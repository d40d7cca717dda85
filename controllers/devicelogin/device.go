package devicelogin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/api/version"
)

// Bounds of a device login: how long a code is good for (the issuer's own limit),
// how often the issuer is asked, how long one answer may take, and its size.
const (
	codeLife        = 15 * time.Minute
	defaultInterval = 5 * time.Second
	maxInterval     = time.Minute
	requestTimeout  = 15 * time.Second
	maxAnswer       = 64 << 10
)

// device is one device login at OpenAI's issuer, as the Codex CLI does it.
type device struct {
	client *http.Client
	issuer effective.Issuer
	// base is the URL of the issuer without a path.
	base  string
	pause waiting
}

// waiting passes some time; it fails when ctx ends.
type waiting func(ctx context.Context, d time.Duration) error

// code is what a person types in.
type code struct {
	deviceID, userCode string
	interval           time.Duration
}

// tokens are the result. They must not be printed.
type tokens struct{ id, access, refresh string }

// String hides the tokens from a careless %v.
func (tokens) String() string { return "tokens" }

// GoString is String, for %#v.
func (tokens) GoString() string { return "tokens" }

func newDevice(client *http.Client, issuer effective.Issuer, wait waiting) (*device, error) {
	u, err := url.Parse(issuer.TokenURL)
	if err != nil || u.Host == "" {
		return nil, errors.New("oauth.tokenURL is no URL")
	}
	return &device{client: client, issuer: issuer, base: u.Scheme + "://" + u.Host, pause: wait}, nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// page is where a person types the code in.
func (d *device) page() string { return d.base + "/codex/device" }

// begin asks for a code.
func (d *device) begin(ctx context.Context) (code, error) {
	var answer struct {
		DeviceID string          `json:"device_auth_id"`
		Code     string          `json:"user_code"`
		Other    string          `json:"usercode"` // an older name of it
		Interval json.RawMessage `json:"interval"` // a number, or a text with one
	}
	status, err := d.post(ctx, "/api/accounts/deviceauth/usercode", map[string]string{"client_id": d.issuer.ClientID}, &answer)
	switch {
	case err != nil:
		return code{}, fmt.Errorf("asking %s for a code: %w", d.base, err)
	case status == http.StatusNotFound:
		return code{}, fmt.Errorf("%s has no device login: log in with the Codex CLI and put its auth.json into the Secret", d.base)
	case status != http.StatusOK:
		return code{}, fmt.Errorf("asking %s for a code: it answered with status %d", d.base, status)
	}
	c := code{deviceID: answer.DeviceID, userCode: cmp.Or(answer.Code, answer.Other), interval: interval(answer.Interval)}
	if c.deviceID == "" || !printable(c.userCode) {
		return code{}, fmt.Errorf("asking %s for a code: it answered without one", d.base)
	}
	return c, nil
}

// printable says whether a code can be shown on a terminal.
func printable(s string) bool {
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func interval(raw json.RawMessage) time.Duration {
	seconds, err := strconv.Atoi(strings.Trim(string(raw), `"`))
	if err != nil || seconds < 1 {
		return defaultInterval
	}
	return min(time.Duration(seconds)*time.Second, maxInterval)
}

// grant is what the issuer gives once the person has agreed.
type grant struct {
	Code     string `json:"authorization_code"`
	Verifier string `json:"code_verifier"`
}

// wait asks until the person has agreed.
func (d *device) wait(ctx context.Context, c code) (grant, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, codeLife, errors.New("nobody typed the code in within 15 minutes"))
	defer cancel()
	ask := map[string]string{"device_auth_id": c.deviceID, "user_code": c.userCode}
	for {
		if err := d.pause(ctx, c.interval); err != nil {
			return grant{}, fmt.Errorf("waiting for the login: %w", err)
		}
		var g grant
		status, err := d.post(ctx, "/api/accounts/deviceauth/token", ask, &g)
		switch {
		case err != nil, status >= 500, status == http.StatusTooManyRequests:
			// A poll may be lost; the person is still typing.
		case status == http.StatusForbidden, status == http.StatusNotFound:
			// That is how "not yet" is said.
		case status != http.StatusOK:
			return grant{}, fmt.Errorf("waiting for the login: %s answered with status %d", d.base, status)
		case g.Code == "":
			return grant{}, fmt.Errorf("waiting for the login: %s answered without an authorization code", d.base)
		default:
			return g, nil
		}
	}
}

// exchange turns the grant into tokens, with one request.
func (d *device) exchange(ctx context.Context, g grant) (tokens, error) {
	form := url.Values{
		"grant_type": {"authorization_code"}, "client_id": {d.issuer.ClientID}, "code": {g.Code}, "code_verifier": {g.Verifier},
		"redirect_uri": {d.base + "/deviceauth/callback"},
	}
	var answer struct {
		ID      string `json:"id_token"`
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
	}
	status, err := d.send(ctx, d.issuer.TokenURL, "application/x-www-form-urlencoded", []byte(form.Encode()), &answer)
	switch {
	case err != nil:
		return tokens{}, fmt.Errorf("fetching the tokens from %s: %w", d.base, err)
	case status != http.StatusOK:
		return tokens{}, fmt.Errorf("fetching the tokens from %s: it answered with status %d", d.base, status)
	case !effective.IsToken(answer.Access) || !effective.IsToken(answer.Refresh):
		return tokens{}, fmt.Errorf("fetching the tokens from %s: it gave no access token and refresh token", d.base)
	}
	return tokens{answer.ID, answer.Access, answer.Refresh}, nil
}

func (d *device) post(ctx context.Context, path string, fields map[string]string, into any) (status int, err error) {
	body, err := json.Marshal(fields)
	if err != nil {
		return 0, fmt.Errorf("encoding the request: %w", err)
	}
	return d.send(ctx, d.base+path, "application/json", body, into)
}

// send decodes an answer with status 200. Its errors quote nothing of the answer.
func (d *device) send(ctx context.Context, to, kind string, body []byte, into any) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("making the request: %w", err)
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "causeway-operator/"+version.Version)
	resp, err := d.client.Do(req)
	if err != nil {
		return 0, err //nolint:wrapcheck // the caller says what was being done
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, fmt.Errorf("reading the answer: %w", err)
	}
	if resp.StatusCode == http.StatusOK && json.Unmarshal(raw, into) != nil {
		return 0, errors.New("the answer is not the JSON that was expected")
	}
	return resp.StatusCode, nil
}
