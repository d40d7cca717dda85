package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

func sample() image {
	return image{refs: []string{"localhost/a:dev", "localhost/a:v1"}, entrypoint: []string{"/a"}, user: "65532:65532", arch: "amd64",
		files: []file{{path: "etc/ssl/ca.crt", mode: 0o644, content: []byte("ca")}, {path: "a", mode: 0o755, content: []byte("binary")}}}
}

func entries(t *testing.T, content []byte) (names []string, files map[string][]byte) {
	t.Helper()
	files = map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(content))
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, files
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
		files[header.Name] = body
	}
}

func TestImageIsReproducible(t *testing.T) {
	var first, second bytes.Buffer
	if err := errors.Join(sample().write(&first), sample().write(&second)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two images of the same files differ")
	}
}

func TestDescriptorsLeadToBlobs(t *testing.T) {
	var out bytes.Buffer
	if err := sample().write(&out); err != nil {
		t.Fatal(err)
	}
	_, files := entries(t, out.Bytes())
	var idx index
	if err := json.Unmarshal(files["index.json"], &idx); err != nil {
		t.Fatal(err)
	}
	if len(idx.Manifests) != 2 {
		t.Fatalf("got %d manifests, want one per reference", len(idx.Manifests))
	}
	if got := idx.Manifests[1].Annotations["io.containerd.image.name"]; got != "localhost/a:v1" {
		t.Errorf("name is %q", got)
	}
	var m manifest
	if err := json.Unmarshal(files[blobPath(idx.Manifests[0])], &m); err != nil {
		t.Fatal(err)
	}
	layer := files[blobPath(m.Layers[0])]
	if len(layer) != m.Layers[0].Size {
		t.Fatalf("layer has %d bytes, its descriptor says %d", len(layer), m.Layers[0].Size)
	}
	names, _ := entries(t, layer)
	if got, want := strings.Join(names, " "), "a etc/ etc/ssl/ etc/ssl/ca.crt"; got != want {
		t.Errorf("layer holds %q, want %q", got, want)
	}
}
