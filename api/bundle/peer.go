package bundle

import (
	"encoding/base64"
	"fmt"
)

// PeerKeyBytes is the length of a peer key: that of the hash it is used with.
const PeerKeyBytes = 32

// DecodePeerKeys returns the peer keys as bytes. Its errors quote nothing.
func (c Credentials) DecodePeerKeys() ([][]byte, error) {
	keys := make([][]byte, 0, len(c.PeerKeys))
	for i, text := range c.PeerKeys {
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(key) != PeerKeyBytes {
			return nil, fmt.Errorf("%s: peerKeys[%d]: not %d bytes in base64", CredentialsFileName, i, PeerKeyBytes)
		}
		keys = append(keys, key)
	}
	return keys, nil
}
