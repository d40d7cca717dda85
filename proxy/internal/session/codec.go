package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
)

// recordFormat is the version of a stored record. Another version is not read:
// the session starts anew, which costs an upload and no context.
const recordFormat = 1

// Bounds of what is read back: whatever wrote it, it stays small in memory.
const (
	maxStoredID      = 512
	maxStoredOutputs = 4096
	maxStoredCount   = 1 << 20
)

// storedRecord is a Record as it is written. Times are Unix milliseconds.
type storedRecord struct {
	Format    int           `json:"v"`
	Account   string        `json:"account,omitempty"`
	Model     string        `json:"model,omitempty"`
	Anchor    *storedAnchor `json:"anchor,omitempty"`
	Health    storedHealth  `json:"health,omitzero"`
	Version   int64         `json:"version"`
	UpdatedAt int64         `json:"at"`
}

type storedAnchor struct {
	ResponseID string            `json:"id"`
	Account    string            `json:"account"`
	Connection uint64            `json:"conn,omitempty"`
	Status     AnchorStatus      `json:"status,omitempty"`
	Cause      AnchorCause       `json:"cause,omitempty"`
	Since      int64             `json:"since,omitempty"`
	Items      int               `json:"items,omitempty"`
	Prefix     affinity.Digest   `json:"prefix,omitzero"`
	Outputs    []affinity.Output `json:"outputs,omitempty"`
}

type storedHealth struct {
	Strikes        int          `json:"strikes,omitempty"`
	Class          StrikeClass  `json:"class,omitempty"`
	StruckAt       int64        `json:"struckAt,omitempty"`
	StruckSequence int64        `json:"struckSeq,omitempty"`
	Blamed         string       `json:"blamed,omitempty"`
	Struck         []string     `json:"struck,omitempty"`
	Eventless      int          `json:"eventless,omitempty"`
	EventlessAt    int64        `json:"eventlessAt,omitempty"`
	Probe          *storedProbe `json:"probe,omitempty"`
	MinGeneration  uint64       `json:"minGeneration,omitempty"`
	Denied         []string     `json:"denied,omitempty"`
	Sequence       int64        `json:"seq,omitempty"`
	Cleared        int64        `json:"cleared,omitempty"`
	Reset          string       `json:"reset,omitempty"`
}

type storedProbe struct {
	Token   string `json:"token"`
	Until   int64  `json:"until"`
	Created bool   `json:"created,omitempty"`
}

// EncodeRecord writes a record as the store keeps it.
func EncodeRecord(r Record) []byte {
	h := r.Health
	s := storedRecord{
		Format: recordFormat, Account: r.Account, Model: r.Model, Version: r.Version, UpdatedAt: millis(r.UpdatedAt),
		Health: storedHealth{
			Strikes: h.Strikes, Class: h.Class, StruckAt: millis(h.StruckAt), StruckSequence: h.StruckSequence, Blamed: h.Blamed,
			Struck: h.Struck, Eventless: h.Eventless, EventlessAt: millis(h.EventlessAt), MinGeneration: h.MinGeneration,
			Denied: h.Denied, Sequence: h.Sequence, Cleared: h.Cleared, Reset: h.Reset,
		},
	}
	if p := h.Probe; p != nil {
		s.Health.Probe = &storedProbe{p.Token, millis(p.Until), p.Created}
	}
	if a := r.Anchor; a != nil {
		s.Anchor = &storedAnchor{
			ResponseID: a.ResponseID, Account: a.Account, Connection: a.Connection, Status: a.Status, Cause: a.Cause,
			Since: millis(a.Since), Items: a.Known.Items, Prefix: a.Known.Prefix, Outputs: a.Known.Outputs,
		}
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return nil // plain values always marshal
	}
	return raw
}

// DecodeRecord reads what EncodeRecord wrote. A clock that was ahead of now does
// not reach into the future: what it says happened now.
func DecodeRecord(raw []byte, now time.Time) (Record, error) {
	var s storedRecord
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(&s); err != nil {
		return Record{}, fmt.Errorf("stored record: %w", err)
	}
	if s.Format != recordFormat {
		return Record{}, fmt.Errorf("stored record: format %d, this version reads %d", s.Format, recordFormat)
	}
	if err := s.check(); err != nil {
		return Record{}, fmt.Errorf("stored record: %w", err)
	}
	h := s.Health
	r := Record{
		Account: s.Account, Model: s.Model, Version: s.Version, UpdatedAt: seen(s.UpdatedAt, now),
		Health: Health{
			Strikes: h.Strikes, Class: h.Class, StruckAt: seen(h.StruckAt, now), StruckSequence: h.StruckSequence, Blamed: h.Blamed,
			Struck: h.Struck, Eventless: h.Eventless, EventlessAt: seen(h.EventlessAt, now), MinGeneration: h.MinGeneration,
			Denied: h.Denied, Sequence: h.Sequence, Cleared: h.Cleared, Reset: h.Reset,
		},
	}
	if p := h.Probe; p != nil {
		r.Health.Probe = &Probe{Token: p.Token, Until: soon(p.Until, now), Created: p.Created}
	}
	if a := s.Anchor; a != nil {
		r.Anchor = &Anchor{
			ResponseID: a.ResponseID, Account: a.Account, Connection: a.Connection, Status: a.Status, Cause: a.Cause, Since: seen(a.Since, now),
			Known: affinity.Known{Items: a.Items, Prefix: a.Prefix, Outputs: a.Outputs},
		}
	}
	return r, nil
}

// check refuses what no version of this program wrote.
func (s *storedRecord) check() error {
	h := &s.Health
	ids := slices.Concat(h.Struck, h.Denied, []string{s.Account, s.Model, h.Blamed, h.Reset})
	switch {
	case s.Version < 0, h.Strikes < 0, h.Strikes > maxStoredCount, h.Eventless < 0, h.Eventless > maxStoredCount, h.Sequence < 0:
		return errors.New("a count is out of range")
	case int(h.Class) >= len(strikeNames):
		return errors.New("health.class is unknown")
	case len(h.Struck) > fewIDs, len(h.Denied) > fewIDs:
		return errors.New("too many ids")
	}
	if p := h.Probe; p != nil {
		if p.Token == "" {
			return errors.New("health.probe has no token")
		}
		ids = append(ids, p.Token)
	}
	if a := s.Anchor; a != nil {
		switch {
		case a.ResponseID == "":
			return errors.New("anchor has no id")
		case int(a.Status) >= len(anchorStatusNames):
			return errors.New("anchor.status is unknown")
		case a.Items < 0, a.Items > maxStoredCount, len(a.Outputs) > maxStoredOutputs:
			return errors.New("anchor is too large")
		}
		ids = append(ids, a.ResponseID, a.Account, string(a.Cause))
	}
	for _, id := range ids {
		if len(id) > maxStoredID {
			return errors.New("an id is too long")
		}
	}
	return nil
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// seen is a time that has been; zero stays zero.
func seen(ms int64, now time.Time) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	if t := time.UnixMilli(ms); t.Before(now) {
		return t
	}
	return now
}

// maxProbeLease is the longest lease that a policy can give a probe.
const maxProbeLease = time.Hour

// soon is a time that comes, within the longest lease.
func soon(ms int64, now time.Time) time.Time {
	t := time.UnixMilli(ms)
	if last := now.Add(maxProbeLease); t.After(last) {
		return last
	}
	return t
}
