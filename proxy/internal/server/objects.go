package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// Objects knows which account holds what a client has put upstream: files, uploads,
// containers. bridge.Bridge does.
type Objects interface {
	// PinFile notes the account of an object. It must not block.
	PinFile(client, id, account string)
	// FileAccount is the account of an object; empty = nobody knows. An error says
	// that who may know does not answer.
	FileAccount(ctx context.Context, client, id string) (account string, err error)
}

// maxObjectID bounds an id that is remembered, maxObject an answer that is looked
// at for one.
const (
	maxObjectID = 128
	maxObject   = 64 << 10
)

// held are the collections whose objects live on one account.
var held = map[string]bool{
	"files": true, "uploads": true, "containers": true, "vector_stores": true, "conversations": true, "batches": true,
}

// objectOf takes a path apart: whether it is about such a collection, and about
// which object of it.
func objectOf(path string) (id string, ok bool) {
	collection, rest, _ := strings.Cut(strings.Trim(strings.TrimPrefix(path, platformPrefix), "/"), "/")
	id, _, _ = strings.Cut(rest, "/")
	return id, held[collection]
}

// owner is the account that a request has to go to; empty = any will do.
func (s *Server) owner(ctx context.Context, c *call) (string, error) {
	id, ok := objectOf(c.r.URL.Path)
	if !ok || id == "" || s.objects == nil {
		return "", nil
	}
	account, err := s.objects.FileAccount(ctx, c.client, id)
	if err != nil {
		return "", failure.New(failure.StoreUnavailable, "The store that knows which account holds this object does not answer; retry later.",
			failure.Reason("store"))
	}
	return account, nil
}

// remembering reads along an answer that may name a new object.
func (p *pass) remembering(res *http.Response) io.ReadCloser {
	_, ok := objectOf(p.r.URL.Path)
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if !ok || p.server.objects == nil || p.r.Method != http.MethodPost || err != nil || kind != "application/json" ||
		res.Header.Get("Content-Encoding") != "" {
		return res.Body
	}
	return &objectReader{ReadCloser: res.Body, pass: p}
}

// objectReader keeps a copy of a small answer, and its object once it is complete.
type objectReader struct {
	io.ReadCloser
	pass *pass
	seen bytes.Buffer
}

// Read implements io.Reader.
func (o *objectReader) Read(b []byte) (int, error) {
	n, err := o.ReadCloser.Read(b)
	if o.seen.Len()+n <= maxObject {
		o.seen.Write(b[:n])
	} else {
		o.seen.Truncate(0)
		o.pass = nil // too large to name one object
	}
	if errors.Is(err, io.EOF) && o.pass != nil {
		for _, path := range []string{"id", "file.id"} {
			if id := gjson.GetBytes(o.seen.Bytes(), path).Str; id != "" && len(id) <= maxObjectID {
				o.pass.server.objects.PinFile(o.pass.client, id, o.pass.account)
			}
		}
		o.pass = nil
	}
	return n, err
}
