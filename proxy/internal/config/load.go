package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/api/bundle"
)

// dataLink is the symlink by which the kubelet swaps all files of a volume at once.
const dataLink = "..data"

// maxFileBytes bounds one file of the folder; a bundle has at most 512 KiB.
const maxFileBytes = 4 << 20

// Reasons of a Rejected.
const (
	// ReasonVersionSkew: made for another version of the contract.
	ReasonVersionSkew = "VersionSkew"
	// ReasonUnreadable: the files cannot be read.
	ReasonUnreadable = "Unreadable"
	// ReasonInvalid: the files can be read and are wrong.
	ReasonInvalid = "Invalid"
)

// Rejected is why a configuration is not served. All errors of Load are one.
// Its text names file and field and holds no value of a Secret.
type Rejected struct {
	Reason string
	// Generation, Hash (of the bundle) and CredentialsHash are those of the
	// refused documents as far as they can be told; zero otherwise.
	Generation      int64
	Hash            string
	CredentialsHash string

	err error
}

func (r *Rejected) Error() string { return r.err.Error() }

func (r *Rejected) Unwrap() error { return r.err }

// Load reads the configuration of dir once: bundle.json and credentials.json if
// the first is there, else all *.yaml and *.yml manifests. Errors are *Rejected.
func Load(dir string) (*Runtime, error) {
	rt, err := load(dir)
	if errors.Is(err, fs.ErrNotExist) {
		// The kubelet may have removed the files between look-up and read.
		rt, err = load(dir)
	}
	if err == nil {
		return rt, nil
	}
	var r *Rejected
	if !errors.As(err, &r) {
		r = &Rejected{Reason: ReasonInvalid, err: err}
		if errors.Is(err, bundle.ErrVersionSkew) {
			r.Reason = ReasonVersionSkew
		}
	}
	return nil, r
}

func load(dir string) (*Runtime, error) {
	base := dir
	// Reading through one target gives files of one moment.
	if target, err := os.Readlink(filepath.Join(dir, dataLink)); err == nil {
		base = target
		if !filepath.IsAbs(target) {
			base = filepath.Join(dir, target)
		}
	}
	entries, err := os.ReadDir(base)
	if err != nil {
		return nil, unreadable("reading configuration folder", err)
	}
	raw := map[string][]byte{}
	hasBundle := false
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") || e.IsDir() || !wantedFile(name) {
			continue
		}
		if raw[name], err = readFile(filepath.Join(base, name)); err != nil {
			return nil, unreadable("reading "+name, err)
		}
		hasBundle = hasBundle || name == bundle.FileName
	}
	if hasBundle {
		return fromBundle(raw[bundle.FileName], raw[bundle.CredentialsFileName])
	}
	return fromManifests(dir, raw)
}

func wantedFile(name string) bool {
	switch name {
	case "kustomization.yaml", "kustomization.yml":
		return false // about files, for kubectl -k; it may even lack a kind
	}
	switch filepath.Ext(name) {
	case ".yaml", ".yml":
		return true
	}
	return name == bundle.FileName || name == bundle.CredentialsFileName
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("not a regular file")
	case info.Size() > maxFileBytes:
		return nil, fmt.Errorf("larger than %d bytes", maxFileBytes)
	}
	return os.ReadFile(path) //nolint:gosec // the folder is the operator's or the user's own
}

func unreadable(doing string, err error) error {
	return &Rejected{Reason: ReasonUnreadable, err: fmt.Errorf("%s: %w", doing, err)}
}

func fromBundle(rawBundle, rawCredentials []byte) (*Runtime, error) {
	rt, err := decodeBoth(rawBundle, rawCredentials)
	if err == nil {
		return rt, nil
	}
	r := &Rejected{Reason: ReasonInvalid, err: err, Generation: gjson.GetBytes(rawBundle, "generation").Int(),
		Hash: hashIn(rawBundle), CredentialsHash: hashIn(rawCredentials)}
	if errors.Is(err, bundle.ErrVersionSkew) {
		r.Reason = ReasonVersionSkew
	}
	return nil, r
}

func decodeBoth(rawBundle, rawCredentials []byte) (*Runtime, error) {
	b, err := bundle.Decode(rawBundle)
	if err != nil {
		return nil, err
	}
	// No credentials at all is a fault of delivery, not a wish to serve nobody.
	if rawCredentials == nil {
		return nil, fmt.Errorf("%s is missing: it belongs beside %s", bundle.CredentialsFileName, bundle.FileName)
	}
	c, err := bundle.DecodeCredentials(rawCredentials)
	if err != nil {
		return nil, err
	}
	return New(b, c)
}

// hashIn reads a hash that nothing else is known of: it is shown only if it can
// be one.
func hashIn(raw []byte) string {
	const longest = 64
	h := gjson.GetBytes(raw, "hash").String()
	if len(h) > longest || strings.Trim(h, "0123456789abcdef") != "" {
		return ""
	}
	return h
}

func fromManifests(dir string, raw map[string][]byte) (*Runtime, error) {
	m := newManifests()
	var errs []error
	for _, name := range files(raw) {
		if name != bundle.CredentialsFileName {
			errs = append(errs, m.add(name, raw[name]))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(raw) == 0 {
		return nil, fmt.Errorf("%s holds neither %s nor *.yaml manifests: name the folder that does", cmp.Or(dir, "."), bundle.FileName)
	}
	return m.runtime()
}
