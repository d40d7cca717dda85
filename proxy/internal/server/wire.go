package server

import (
	"bytes"
	"net/http"
)

// wire is a ResponseWriter that keeps an answer for a connection that has no
// handler.
type wire struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (w *wire) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *wire) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter.
func (w *wire) Write(p []byte) (int, error) { return w.body.Write(p) }
