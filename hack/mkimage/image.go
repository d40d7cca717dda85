package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// Media types of the OCI image format, version 1.1.
const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// beginning is the time of every entry: a real one would change the digest.
var beginning = time.Unix(0, 0).UTC()

type file struct {
	path    string
	mode    int64
	content []byte
}

type image struct {
	refs, entrypoint, env []string
	user, arch            string
	files                 []file
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type config struct {
	Created      time.Time `json:"created"`
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       struct {
		Entrypoint []string `json:"Entrypoint,omitempty"`
		Env        []string `json:"Env,omitempty"`
		User       string   `json:"User,omitempty"`
		WorkingDir string   `json:"WorkingDir"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

// legacy is manifest.json, which older docker versions read instead of the index.
type legacy struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// write puts the image as an OCI layout, with a legacy manifest beside it.
func (i image) write(w io.Writer) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	b := blobs{}
	layerBlob := b.add(mediaLayer, layer)
	configBlob, err := b.addJSON(mediaConfig, i.config(layerBlob.Digest))
	if err != nil {
		return err
	}
	manifestBlob, err := b.addJSON(mediaManifest, manifest{SchemaVersion: 2, MediaType: mediaManifest,
		Config: configBlob, Layers: []descriptor{layerBlob}})
	if err != nil {
		return err
	}
	out := archive{w: tar.NewWriter(w)}
	out.json("oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"})
	out.json("index.json", index{SchemaVersion: 2, MediaType: mediaIndex, Manifests: i.named(manifestBlob)})
	out.json("manifest.json", []legacy{{Config: blobPath(configBlob), RepoTags: i.refs, Layers: []string{blobPath(layerBlob)}}})
	for _, digest := range b.digests() {
		out.file("blobs/sha256/"+digest, 0o644, b[digest])
	}
	return out.close()
}

// layer is a tar with every parent directory before what is in it.
func (i image) layer() ([]byte, error) {
	files := slices.SortedFunc(slices.Values(i.files), func(a, b file) int { return strings.Compare(a.path, b.path) })
	var buffer bytes.Buffer
	out := archive{w: tar.NewWriter(&buffer)}
	known := map[string]bool{".": true}
	for _, f := range files {
		var parents []string
		for dir := path.Dir(f.path); !known[dir]; dir = path.Dir(dir) {
			known[dir] = true
			parents = append(parents, dir)
		}
		slices.Reverse(parents)
		for _, dir := range parents {
			out.directory(dir)
		}
		out.file(f.path, f.mode, f.content)
	}
	err := out.close()
	return buffer.Bytes(), err
}

func (i image) config(layerDigest string) config {
	c := config{Created: beginning, Architecture: i.arch, OS: "linux"}
	c.Config.Entrypoint, c.Config.Env, c.Config.User, c.Config.WorkingDir = i.entrypoint, i.env, i.user, "/"
	c.RootFS.Type, c.RootFS.DiffIDs = "layers", []string{layerDigest}
	return c
}

// named is the manifest once per reference; containerd takes the name from the
// first annotation, docker and podman the tag from the second.
func (i image) named(m descriptor) []descriptor {
	var list []descriptor
	for _, ref := range i.refs {
		entry := m
		entry.Platform = &platform{Architecture: i.arch, OS: "linux"}
		entry.Annotations = map[string]string{
			"io.containerd.image.name":          ref,
			"org.opencontainers.image.ref.name": ref[strings.LastIndexByte(ref, ':')+1:],
		}
		list = append(list, entry)
	}
	return list
}

// blobs maps the hex digest of a blob to its bytes.
type blobs map[string][]byte

func (b blobs) add(mediaType string, content []byte) descriptor {
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	b[digest] = content
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(content)}
}

func (b blobs) addJSON(mediaType string, value any) (descriptor, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, err
	}
	return b.add(mediaType, content), nil
}

func (b blobs) digests() []string {
	var list []string
	for digest := range b {
		list = append(list, digest)
	}
	slices.Sort(list)
	return list
}

func blobPath(d descriptor) string { return "blobs/sha256/" + strings.TrimPrefix(d.Digest, "sha256:") }

// archive is a tar writer that remembers its first error.
type archive struct {
	w   *tar.Writer
	err error
}

func (a *archive) directory(name string) {
	a.add(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: beginning}, nil)
}

func (a *archive) file(name string, mode int64, content []byte) {
	a.add(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: beginning}, content)
}

func (a *archive) json(name string, value any) {
	content, err := json.Marshal(value)
	if err != nil && a.err == nil {
		a.err = fmt.Errorf("encoding %s: %w", name, err)
	}
	a.file(name, 0o644, content)
}

func (a *archive) add(header *tar.Header, content []byte) {
	if a.err != nil {
		return
	}
	if a.err = a.w.WriteHeader(header); a.err == nil {
		_, a.err = a.w.Write(content)
	}
}

func (a *archive) close() error {
	if a.err != nil {
		return a.err
	}
	return a.w.Close()
}
