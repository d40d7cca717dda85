package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// turnLimit bounds a short turn; a path that needs longer is out of order.
const turnLimit = 30 * time.Second

// sample is one event as its receiver saw it.
type sample struct{ sent, took int64 } // Unix nanoseconds, nanoseconds

// session is one client: a connection and the conversation it resends with each
// turn. It reads its connection itself, without the goroutines of net/http, to
// leave the machine to what is measured.
type session struct {
	target  *target
	id      string
	key     string
	conn    net.Conn
	br      *bufio.Reader
	history []string

	samples []sample
}

func newSession(t *target) *session {
	var id [16]byte
	_, _ = rand.Read(id[:])
	return &session{target: t, id: hex.EncodeToString(id[:]), key: t.key}
}

// path is the request's; all three targets serve it.
const path = "/v1/responses"

func (s *session) dial(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.target.address)
	if err != nil {
		return err
	}
	if s.target.tls != nil {
		secure := tls.Client(conn, s.target.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return err
		}
		conn = secure
	}
	s.conn, s.br = conn, bufio.NewReaderSize(conn, 4<<10)
	return nil
}

func (s *session) close() {
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}

// send writes a request and reads the response's head.
func (s *session) send(model string) (*http.Response, error) {
	body := requestBody(model, s.id, s.history)
	head := "POST " + path + " HTTP/1.1\r\nHost: " + s.target.address + "\r\nAuthorization: Bearer " + s.key +
		"\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\nSession-Id: " + s.id + "\r\nThread-Id: " + s.id +
		"\r\nUser-Agent: causeway-bench\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
	if _, err := s.conn.Write(append([]byte(head), body...)); err != nil {
		return nil, fmt.Errorf("sending the request: %w", err)
	}
	resp, err := http.ReadResponse(s.br, nil)
	if err != nil {
		return nil, fmt.Errorf("reading the response: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
		return nil, fmt.Errorf("%s answered %s: %s", s.target.name, resp.Status, bytes.TrimSpace(text))
	}
	return resp, nil
}

// turn makes one short turn and returns the time to its first event. A new
// session's includes its connection.
func (s *session) turn(ctx context.Context) (time.Duration, error) {
	begun := time.Now()
	if s.conn == nil {
		if err := s.dial(ctx); err != nil {
			return 0, err
		}
	}
	if err := s.conn.SetDeadline(begun.Add(turnLimit)); err != nil {
		return 0, err
	}
	s.history = append(s.history, userItem("Question "+strconv.Itoa(len(s.history))))
	resp, err := s.send(modelTurn)
	if err != nil {
		return 0, err
	}
	var first time.Duration
	var text []byte
	buf := make([]byte, 4<<10)
	for {
		n, err := resp.Body.Read(buf)
		text = append(text, buf[:n]...)
		if first == 0 && bytes.Contains(text, dataPrefix) {
			first = time.Since(begun)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("reading the stream: %w", err)
		}
	}
	if !bytes.Contains(text, completedMark) {
		return 0, fmt.Errorf("a turn through %s was cut: %.200q", s.target.name, text)
	}
	s.history = append(s.history, itemDone)
	return first, nil
}

// follow reads a paced stream to its end. opened is called at its first bytes.
func (s *session) follow(ctx context.Context, received *atomic.Int64, opened func()) error {
	if err := s.dial(ctx); err != nil {
		return err
	}
	defer s.close()
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	s.history = append(s.history, userItem("Go on until you are told to stop"))
	resp, err := s.send(modelPaced)
	if err != nil {
		return err
	}
	buf := make([]byte, 0, 4<<10)
	completed, first := false, true
	for {
		n, err := resp.Body.Read(buf[len(buf):cap(buf)])
		now := time.Now().UnixNano()
		if first && n > 0 {
			first = false
			opened()
		}
		var events int
		buf, events, completed = s.take(buf[:len(buf)+n], now, completed)
		received.Add(int64(events))
		switch {
		case err == nil && len(buf) < cap(buf):
		case err == nil:
			return errors.New("a line of the stream is too long")
		case errors.Is(err, io.EOF) && completed:
			return nil
		default:
			return fmt.Errorf("a stream through %s was cut: %w", s.target.name, err)
		}
	}
}

// take counts the events of the complete lines in buf and moves the rest to its
// start.
func (s *session) take(buf []byte, now int64, completed bool) (rest []byte, events int, done bool) {
	done = completed
	left := buf
	for {
		i := bytes.IndexByte(left, '\n')
		if i < 0 {
			break
		}
		line := left[:i]
		left = left[i+1:]
		if !bytes.HasPrefix(line, dataPrefix) {
			continue
		}
		if sent := stampOf(line); sent != 0 {
			events++
			s.samples = append(s.samples, sample{sent, now - sent})
		} else if bytes.Contains(line, completedMark) {
			done = true
		}
	}
	return buf[:copy(buf, left)], events, done
}
