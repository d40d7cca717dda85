package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	readyIn = 15 * time.Second
	stopIn  = 10 * time.Second
)

// process is a program started for the run.
type process struct {
	cmd  *exec.Cmd
	name string
	log  string
	done chan struct{}
}

// start runs a program with its errors in a file of dir.
func start(cmd *exec.Cmd, dir, name string) (*process, error) {
	p := &process{cmd: cmd, name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	cmd.Stderr = out
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop ends the process, kindly at first.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	t := time.NewTimer(stopIn)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// failure adds the end of the log to err.
func (p *process) failure(err error) error {
	text, readErr := os.ReadFile(p.log)
	if readErr != nil || len(text) == 0 {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("%w; the end of the log of %s:\n%s", err, p.name, strings.Join(lines[max(0, len(lines)-10):], "\n"))
}

// await polls until ready accepts, the process ends or time is up.
func (p *process) await(ctx context.Context, ready func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, readyIn)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !ready() {
		select {
		case <-p.done:
			return p.failure(errors.New(p.name + " ended before it was ready"))
		case <-ctx.Done():
			p.stop()
			return p.failure(errors.New(p.name + " was not ready in time"))
		case <-poll.C:
		}
	}
	return nil
}

// freeAddress is a loopback address that nobody listened on a moment ago.
func freeAddress(ctx context.Context) (string, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

func startOrigin(ctx context.Context, dir string, c certificate, rate float64) (*originProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, roleOrigin, "-cert", c.certFile, "-key", c.keyFile, "-rate", fmt.Sprint(rate))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	cmd.Stdout = w
	p, err := start(cmd, dir, roleOrigin)
	_ = w.Close()
	if err != nil {
		return nil, err
	}
	var data, control string
	if _, err := fmt.Fscan(io.LimitReader(r, 256), &data, &control); err != nil {
		p.stop()
		return nil, p.failure(fmt.Errorf("the load origin did not start: %w", err))
	}
	return &originProcess{process: p, data: data, controlURL: "http://" + control, stdin: stdin}, nil
}
