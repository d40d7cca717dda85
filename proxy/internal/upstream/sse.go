package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// errTooLarge says that one event is larger than MaxEventBytes.
var errTooLarge = errors.New("event is too large")

// sseReader reads the data of server-sent events. It follows the standard where
// it matters (LF, CR LF and CR end a line; several data lines are joined by LF;
// comments and other fields are skipped) and gives up an event that the stream's
// end cut short. U+2028 and U+2029 are part of the data.
type sseReader struct {
	r      *bufio.Reader
	skipLF bool
}

const sseReadBytes = 4 << 10

func newSSEReader(r io.Reader) *sseReader { return &sseReader{r: bufio.NewReaderSize(r, sseReadBytes)} }

// next appends the next event's data to into. io.EOF is the end of the stream.
func (s *sseReader) next(into []byte) ([]byte, error) {
	start, line := len(into), make([]byte, 0, 128)
	hasData := false
	for {
		var err error
		if line, err = s.line(line[:0]); err != nil {
			return into[:start], err
		}
		switch {
		case len(line) == 0:
			if hasData {
				return into, nil
			}
		case bytes.HasPrefix(line, []byte("data:")):
			if hasData {
				into = append(into, '\n')
			}
			into = append(into, bytes.TrimPrefix(line[len("data:"):], []byte(" "))...)
			hasData = true
			if len(into)-start > MaxEventBytes {
				return into[:start], errTooLarge
			}
		}
	}
}

// line appends one line without its end.
func (s *sseReader) line(into []byte) ([]byte, error) {
	for {
		if _, err := s.r.Peek(1); err != nil { // waits for more
			return into, err
		}
		chunk, err := s.r.Peek(s.r.Buffered())
		if err != nil {
			return into, err
		}
		if s.skipLF {
			s.skipLF = false
			if chunk[0] == '\n' {
				_, _ = s.r.Discard(1)
				continue
			}
		}
		end := bytes.IndexAny(chunk, "\r\n")
		if end < 0 {
			into = append(into, chunk...)
			_, _ = s.r.Discard(len(chunk))
			if len(into) > MaxEventBytes {
				return into, errTooLarge
			}
			continue
		}
		into = append(into, chunk[:end]...)
		s.skipLF = chunk[end] == '\r'
		_, _ = s.r.Discard(end + 1)
		return into, nil
	}
}
