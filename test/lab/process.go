package main

import (
	"context"
	"errors"
	"fmt"
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
	stopIn  = 5 * time.Second
)

// process is a program started for the run.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// start runs a program with what it says in a file of dir.
func start(cmd *exec.Cmd, dir, name string) (*process, error) {
	p := &process{name: name, cmd: cmd, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	cmd.Stdout, cmd.Stderr = out, out
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

// await polls until it is ready, ends or time is up.
func (p *process) await(ctx context.Context, ready func() bool) error {
	ended := false
	err := awaitTrue(ctx, "that "+p.name+" is ready", readyIn, func() bool {
		select {
		case <-p.done:
			ended = true
			return true
		default:
			return ready()
		}
	})
	switch {
	case ended:
		return p.failure(errors.New(p.name + " ended before it was ready"))
	case err != nil:
		return p.failure(err)
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

// startRedis runs a Redis without persistence; without the program there is none,
// and the address is empty.
func (b *bed) startRedis(ctx context.Context) (string, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return "", nil //nolint:nilerr // replicas do without
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	p, err := start(exec.Command(binary, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", b.dir), b.dir, "redis")
	if err != nil {
		return "", err
	}
	b.all = append([]*process{p}, b.all...)
	return address, p.await(ctx, func() bool {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		return err == nil && conn.Close() == nil
	})
}
