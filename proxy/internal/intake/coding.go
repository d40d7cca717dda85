package intake

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// Content codings a client may use.
const (
	codingZstd    = "zstd"
	codingGzip    = "gzip"
	codingDeflate = "deflate"
)

// maxCodings bounds how many are applied on top of each other. Two is what a
// client behind a compressing gateway produces.
const maxCodings = 2

// maxWindow is the largest zstd window, in bytes. RFC 9659 allows clients no
// larger one in a content coding.
const maxWindow = 8 << 20

// parseCodings reads the Content-Encoding headers: codings in the order in
// which they were applied, without identity.
func parseCodings(headers []string) ([]string, error) {
	var codings []string
	for _, name := range strings.Split(strings.Join(headers, ","), ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		switch name {
		case "", "identity":
			continue
		case "x-gzip":
			name = codingGzip
		case codingZstd, codingGzip, codingDeflate:
		default:
			return nil, unsupported("The content encoding is not supported; use zstd, gzip, deflate or none.")
		}
		codings = append(codings, name)
	}
	if len(codings) > maxCodings {
		return nil, unsupported(fmt.Sprintf("More than %d content encodings are applied to the body.", maxCodings))
	}
	return codings, nil
}

func unsupported(message string) *failure.Failure {
	return failure.New(failure.UnsupportedEncoding, message, failure.Param("Content-Encoding"))
}

// decoders decompress whole bodies, each in two passes: the first counts, with
// no memory but the decoder's, the second fills one buffer of the exact size.
// What unfolds beyond the limit is refused before anything is allocated for it.
type decoders struct {
	limit int
	// whole decodes zstd into a buffer that is its own window. It is safe for
	// concurrent use.
	whole *zstd.Decoder
	zstd  sync.Pool
	gzip  sync.Pool
	zlib  sync.Pool
	flate sync.Pool
}

func newDecoders(limit int) (*decoders, error) {
	whole, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxMemory(uint64(max(limit, zstd.MinWindowSize))))
	if err != nil {
		return nil, err
	}
	return &decoders{limit: limit, whole: whole}, nil
}

// decode returns what in unfolds to. in is not kept.
func (d *decoders) decode(coding string, in []byte) ([]byte, error) {
	if coding == codingZstd {
		if out, done, err := d.decodeSized(in); done {
			return out, err
		}
	}
	size, err := d.pass(coding, in, d.count)
	if err != nil {
		return nil, err
	}
	out := make([]byte, size)
	if _, err := d.pass(coding, in, func(r io.Reader) (int, error) { return fill(r, out) }); err != nil {
		return nil, err
	}
	return out, nil
}

// fill reads r, which holds len(out) bytes, and its end.
func fill(r io.Reader, out []byte) (int, error) {
	n, err := io.ReadFull(r, out)
	if err != nil {
		return n, err
	}
	if extra, err := io.Copy(io.Discard, r); err != nil || extra > 0 {
		return n, fmt.Errorf("%d bytes more at the second reading: %w", extra, errors.Join(err, io.ErrShortBuffer))
	}
	return n, nil
}

// decodeSized decodes one zstd frame that says its size. done is false if there
// is none.
func (d *decoders) decodeSized(in []byte) (out []byte, done bool, err error) {
	var h zstd.Header
	if h.Decode(in) != nil || h.Skippable || !h.HasFCS {
		return nil, false, nil //nolint:nilerr // the two passes say what is wrong
	}
	if h.FrameContentSize > uint64(max(d.limit, 0)) {
		return nil, true, tooLarge(d.limit)
	}
	// A block of 4 bytes unfolds to 128 KiB at most: a size beyond that is a lie.
	if h.FrameContentSize > uint64(len(in))*(128<<10/4) {
		return nil, true, broken(codingZstd)
	}
	out, err = d.whole.DecodeAll(in, make([]byte, 0, h.FrameContentSize))
	switch {
	case err == nil:
		return out, true, nil
	case errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return nil, false, nil // more than one frame: the two passes tell
	default:
		return nil, true, broken(codingZstd)
	}
}

// count reads r to its end, at most one byte beyond the limit.
func (d *decoders) count(r io.Reader) (int, error) {
	n, err := io.Copy(io.Discard, io.LimitReader(r, int64(d.limit)+1))
	if err == nil && n > int64(d.limit) {
		err = tooLarge(d.limit)
	}
	return int(n), err
}

// pass runs one pass over the decompressed form of in.
func (d *decoders) pass(coding string, in []byte, read func(io.Reader) (int, error)) (int, error) {
	input := bytes.NewReader(in)
	r, release, err := d.open(coding, in, input)
	if err != nil {
		return 0, broken(coding)
	}
	n, err := read(r)
	release()
	var f *failure.Failure
	switch {
	case errors.As(err, &f):
		return 0, f
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return 0, failure.New(failure.InvalidRequest, fmt.Sprintf(
			"The zstd window of the request body is larger than %d bytes.", maxWindow), failure.Param("Content-Encoding"))
	case err != nil:
		return 0, broken(coding)
	}
	if input.Len() > 0 { // bytes after the end
		return 0, broken(coding)
	}
	return n, nil
}

// open returns a decoder over input and what gives it back to its pool. A
// decoder in a pool refers to no body.
func (d *decoders) open(coding string, in []byte, input io.Reader) (io.Reader, func(), error) {
	switch {
	case coding == codingZstd:
		return d.openZstd(input)
	case coding == codingGzip:
		z, ok := d.gzip.Get().(*gzip.Reader)
		if !ok {
			z = new(gzip.Reader)
		}
		release := func() {
			_ = z.Reset(empty{})
			d.gzip.Put(z)
		}
		return z, release, z.Reset(input)
	case isZlib(in):
		return openFlate(&d.zlib, input, zlib.NewReader)
	default:
		return openFlate(&d.flate, input, func(r io.Reader) (io.ReadCloser, error) { return flate.NewReader(r), nil })
	}
}

func (d *decoders) openZstd(input io.Reader) (io.Reader, func(), error) {
	z, ok := d.zstd.Get().(*zstd.Decoder)
	if !ok {
		var err error
		// One at a time and without read-ahead: no goroutines to end.
		z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(uint64(max(d.limit, maxWindow))))
		if err != nil {
			return nil, nil, err
		}
	}
	release := func() {
		_ = z.Reset(nil)
		d.zstd.Put(z)
	}
	return z, release, z.Reset(input)
}

// openFlate serves both forms of "deflate"; their readers share an interface.
func openFlate(pool *sync.Pool, input io.Reader, fresh func(io.Reader) (io.ReadCloser, error)) (io.Reader, func(), error) {
	z, ok := pool.Get().(flate.Resetter)
	if !ok {
		opened, err := fresh(input)
		if err != nil {
			return nil, nil, err
		}
		if z, ok = opened.(flate.Resetter); !ok {
			return opened, func() {}, nil
		}
	} else if err := z.Reset(input, nil); err != nil {
		return nil, nil, err
	}
	release := func() {
		_ = z.Reset(empty{}, nil)
		pool.Put(z)
	}
	r, ok := z.(io.Reader)
	if !ok {
		return nil, nil, errors.New("decoder cannot be read")
	}
	return r, release, nil
}

// empty is a reader without content that can be read by the byte, so that no
// decoder wraps it.
type empty struct{}

func (empty) Read([]byte) (int, error) { return 0, io.EOF }
func (empty) ReadByte() (byte, error)  { return 0, io.EOF }

// isZlib tells the two forms of "deflate" apart. A raw stream cannot begin like
// a zlib header: its low bits would be a stored block with padding that no
// encoder writes.
func isZlib(in []byte) bool {
	return len(in) >= 2 && in[0]&0x0f == 8 && (uint(in[0])<<8|uint(in[1]))%31 == 0
}

func broken(coding string) *failure.Failure {
	return failure.New(failure.InvalidRequest, fmt.Sprintf(
		"The request body is not valid %s: it is damaged or incomplete.", coding), failure.Param("Content-Encoding"))
}
