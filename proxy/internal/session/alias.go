package session

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
)

// aliasLife is how long an id leads to its session: longer than the record that
// it leads to, so that a late client is told that its anchor is gone instead of
// being asked whose it is.
const aliasLife = 24 * time.Hour

// responseAlias names a response of a client in the store. The client is part of
// it: nobody finds another's.
func responseAlias(client, responseID string) string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%d:%s%s", len(client), client, responseID)
	return "r" + hex.EncodeToString(h.Sum(nil))
}

// storedOwner is an Owner as it is written.
type storedOwner struct {
	Key        string `json:"key"`
	Account    string `json:"account"`
	Connection uint64 `json:"conn,omitempty"`
	Stored     bool   `json:"stored,omitempty"`
}

func encodeOwner(o Owner) []byte {
	raw, err := json.Marshal(storedOwner{o.Key.Name(), o.Account, o.Connection, o.Stored})
	if err != nil {
		return nil // plain values always marshal
	}
	return raw
}

func decodeOwner(raw []byte) (Owner, error) {
	var s storedOwner
	if err := json.Unmarshal(raw, &s); err != nil {
		return Owner{}, fmt.Errorf("owner of a response: %w", err)
	}
	key, ok := affinity.ParseKey(s.Key)
	if !ok || s.Account == "" || len(s.Account) > maxStoredID {
		return Owner{}, errors.New("owner of a response: no valid key or account")
	}
	return Owner{Known: true, Key: key, Account: s.Account, Connection: s.Connection, Stored: s.Stored}, nil
}
