package upstream

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Positions of a fault.
const (
	AtUpgrade        = "upgrade"        // instead of the 101
	AtBeforeHeaders  = "beforeHeaders"  // request read, nothing sent
	AtAfterHeaders   = "afterHeaders"   // head sent, no event
	AtAfterCreated   = "afterCreated"   // after response.created
	AtAfterItem      = "afterItem"      // after the first output_item.done
	AtBeforeTerminal = "beforeTerminal" // all but the terminal event
	AtAfterTerminal  = "afterTerminal"  // after the terminal event
	atAfterEvents    = "afterEvents:"   // afterEvents:3
)

// AfterEvents is the position after n events.
func AfterEvents(n int) string { return atAfterEvents + strconv.Itoa(n) }

// Actions of a fault. README.md says what each does on either transport.
const (
	ActStatus     = "status"
	ActErrorFrame = "errorFrame"
	ActFailed     = "failed"
	ActIncomplete = "incomplete"
	ActReset      = "reset"
	ActFin        = "fin"
	ActStall      = "stall"
	ActHold       = "hold"
	ActSlow       = "slow"
	ActGarbage    = "garbage"
	ActNonJSON    = "nonJSONFrame"
	ActBinary     = "binaryFrame"
	ActHTML       = "html"
	ActDup        = "dupEvent"
	ActTruncate   = "truncateEvent"
	ActUntermed   = "unterminated"
	ActPretty     = "prettyPrinted"
	ActWSClose    = "wsClose"
	ActNoPong     = "pongSilence"
	ActMute       = "mute"
	ActNoTerminal = "eventWithoutTerminal"
	ActTwice      = "terminalTwice"
	ActUnmatched  = "unmatchedFrames"
)

// Shapes of an error frame.
const (
	ShapeNested     = "nested"     // status and error object: the real one
	ShapeFlat       = "flat"       // code and message at the top, no status
	ShapeTypeOnly   = "typeOnly"   // the error object has only its type
	ShapeNoStatus   = "noStatus"   // nested, no status
	ShapeStatusCode = "statusCode" // status_code instead of status
)

// Fault is one misbehaviour, at one place of an answer.
type Fault struct {
	At     string `json:"at,omitempty"` // empty means beforeHeaders
	Action string `json:"action"`
	// Held makes the fault wait for a release at its place.
	Held bool `json:"held,omitempty"`

	// For status, errorFrame and failed.
	Status  int               `json:"status,omitempty"`
	Code    string            `json:"code,omitempty"`
	Type    string            `json:"type,omitempty"`
	Message string            `json:"message,omitempty"`
	Param   string            `json:"param,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	// Body replaces the JSON of status, html and garbage, the whole frame of
	// errorFrame, and the error object of failed.
	Body  string `json:"body,omitempty"`
	Shape string `json:"shape,omitempty"`

	// Reason of incomplete, and of wsClose.
	Reason string `json:"reason,omitempty"`
	// Duration of stall; 0 means until the peer leaves.
	Duration Duration `json:"duration,omitempty"`
	// BytesPerSecond of slow.
	BytesPerSecond int `json:"bytesPerSecond,omitempty"`
	// CloseCode of wsClose, and of the close that follows an errorFrame.
	CloseCode int `json:"closeCode,omitempty"`
}

var actions = []string{
	ActStatus, ActErrorFrame, ActFailed, ActIncomplete, ActReset, ActFin, ActStall, ActHold, ActSlow, ActGarbage, ActNonJSON, ActBinary, ActHTML,
	ActDup, ActTruncate, ActUntermed, ActPretty, ActWSClose, ActNoPong, ActMute, ActNoTerminal, ActTwice, ActUnmatched,
}

// upgradeActions are those that make sense before there is a socket.
var upgradeActions = []string{ActStatus, ActReset, ActFin, ActStall, ActMute, ActGarbage, ActHTML, ActWSClose, ActNoPong}

func (f *Fault) validate() error {
	if f.Action == "goaway" {
		return fmt.Errorf("action: goaway belongs to HTTP/2, and this server speaks HTTP/1.1 only")
	}
	if !slices.Contains(actions, f.Action) {
		return fmt.Errorf("action: %q is none of %s", f.Action, strings.Join(actions, ", "))
	}
	if f.At == AtUpgrade && !slices.Contains(upgradeActions, f.Action) {
		return fmt.Errorf("action: %q cannot be played at the upgrade; want one of %s", f.Action, strings.Join(upgradeActions, ", "))
	}
	switch f.At {
	case "", AtUpgrade, AtBeforeHeaders, AtAfterHeaders, AtAfterCreated, AtAfterItem, AtBeforeTerminal, AtAfterTerminal:
	default:
		if _, err := f.afterEvents(); err != nil {
			return err
		}
	}
	shapes := []string{"", ShapeNested, ShapeFlat, ShapeTypeOnly, ShapeNoStatus, ShapeStatusCode}
	if !slices.Contains(shapes, f.Shape) {
		return fmt.Errorf("shape: %q is none of %s", f.Shape, strings.Join(shapes[1:], ", "))
	}
	if f.Action == ActSlow && f.BytesPerSecond <= 0 {
		return fmt.Errorf("bytesPerSecond: must be positive for slow")
	}
	return nil
}

func (f *Fault) afterEvents() (int, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(f.At, atAfterEvents))
	if err != nil || n < 0 || !strings.HasPrefix(f.At, atAfterEvents) {
		return 0, fmt.Errorf("at: %q is no position; want beforeHeaders, afterHeaders, afterCreated, afterEvents:N, "+
			"afterItem, beforeTerminal, afterTerminal or upgrade", f.At)
	}
	return n, nil
}

// insteadOfAnswer says whether the fault ends a request before anything else
// about it is looked at.
func (f *Fault) insteadOfAnswer() bool {
	if f.At != "" && f.At != AtBeforeHeaders {
		return false
	}
	switch f.Action {
	case ActStatus, ActErrorFrame, ActReset, ActFin, ActGarbage, ActHTML, ActMute, ActWSClose:
		return true
	default:
		return false
	}
}

// apiError is the error a fault speaks of, with the service's usual words.
func (f *Fault) apiError() *apiError {
	e := &apiError{status: f.Status, code: f.Code, typ: f.Type, message: f.Message, param: f.Param, headers: f.Headers, rawBody: f.Body}
	if e.status == 0 {
		e.status = http.StatusInternalServerError
	}
	if e.code == "" && e.typ == "" {
		e.code = defaultCode(e.status)
	}
	if e.typ == "" {
		e.typ = defaultType(e.status)
	}
	if e.message == "" {
		e.message = "Scripted error " + e.code + "."
	}
	return e
}

func defaultCode(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "invalid_api_key"
	case status == http.StatusTooManyRequests:
		return "rate_limit_exceeded"
	case status >= http.StatusInternalServerError:
		return "server_error"
	default:
		return "invalid_request"
	}
}

func defaultType(status int) string {
	switch {
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status >= http.StatusInternalServerError:
		return "server_error"
	default:
		return "invalid_request_error"
	}
}
