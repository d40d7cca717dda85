package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ErrVersionSkew says that a document was made for another contract version.
var ErrVersionSkew = errors.New("contract version is not supported")

// hashLength is the number of hex digits kept of a SHA-256: 64 bits tell the
// configurations of one bridge apart and stay readable in a condition.
const hashLength = 16

// Seal sets the contract version and the hash. Generation is not part of the
// hash: a change of the spec that changes nothing for a proxy needs no reload.
func (b Bundle) Seal() Bundle {
	b.ContractVersion, b.Hash = ContractVersion, ""
	unhashed := b
	unhashed.Generation = 0
	b.Hash = digest(unhashed)
	return b
}

// Seal sets the contract version and the hash.
func (c Credentials) Seal() Credentials {
	c.ContractVersion, c.Hash = ContractVersion, ""
	c.Hash = digest(c)
	return c
}

// Encode returns the document as a proxy reads it; equal bundles give equal bytes.
func (b Bundle) Encode() ([]byte, error) {
	raw, err := json.Marshal(b)
	if err == nil && len(raw) > MaxBytes {
		return nil, fmt.Errorf("bundle of %d bytes is larger than %d: use fewer accounts or shorter model lists", len(raw), MaxBytes)
	}
	return raw, err
}

// Encode returns the document as a proxy reads it.
func (c Credentials) Encode() ([]byte, error) { return json.Marshal(c) }

// Decode reads and checks a bundle.
func Decode(raw []byte) (Bundle, error) {
	var b Bundle
	if err := decode(raw, &b); err != nil {
		return Bundle{}, fmt.Errorf("%s: %w", FileName, err)
	}
	if b.ContractVersion != ContractVersion {
		return Bundle{}, skew(FileName, b.ContractVersion)
	}
	return b, nil
}

// DecodeCredentials reads and checks a credentials document. Its errors never
// quote the document.
func DecodeCredentials(raw []byte) (Credentials, error) {
	var c Credentials
	if err := decode(raw, &c); err != nil {
		// A JSON error may quote the value at fault, and every value here is secret.
		return Credentials{}, fmt.Errorf("%s: not a valid credentials document", CredentialsFileName)
	}
	if c.ContractVersion != ContractVersion {
		return Credentials{}, skew(CredentialsFileName, c.ContractVersion)
	}
	return c, nil
}

func skew(file string, version int) error {
	return fmt.Errorf("%s: contractVersion %d, this proxy knows %d: %w", file, version, ContractVersion, ErrVersionSkew)
}

// decode tolerates unknown fields: a newer operator of the same contract
// version may add optional ones.
func decode(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON document")
	}
	return nil
}

// digest hashes the JSON form: field order is that of the types, map keys are
// sorted, so that equal values give equal hashes.
func digest(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return "" // plain types without channels or functions always marshal
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])[:hashLength]
}

// KeyDigest is how client keys are compared and stored: lower-case hex SHA-256.
func KeyDigest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}
