// Command causeway-upstream serves the scripted upstream; see the README of
// the package.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/causeway-dev/causeway/test/upstream"
)

// stopWithin bounds the wait for responses under way after SIGTERM.
const stopWithin = 10 * time.Second

type flags struct {
	listen, script, mode, accountsFile string
	tlsCert, tlsKey, selfSigned, caOut string
	accounts                           []string
	verbose                            bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			_, _ = io.WriteString(os.Stderr, "causeway-upstream: "+err.Error()+"\n")
		}
		os.Exit(1)
	}
}

func parse(args []string, out io.Writer) (flags, error) {
	var f flags
	fs := flag.NewFlagSet("causeway-upstream", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.StringVar(&f.listen, "listen", "127.0.0.1:8089", "`address` to listen on")
	fs.StringVar(&f.script, "script", "", "`file` with the script, YAML or JSON")
	fs.StringVar(&f.mode, "mode", "", "platform or chatgpt; unset, the path of a request decides")
	fs.Func("account", "`name=token` of an account; may be given several times", func(s string) error {
		f.accounts = append(f.accounts, s)
		return nil
	})
	fs.StringVar(&f.accountsFile, "accounts", "", "`file` with one name=token a line")
	fs.StringVar(&f.tlsCert, "tls-cert", "", "`file` with the certificate")
	fs.StringVar(&f.tlsKey, "tls-key", "", "`file` with its key")
	fs.StringVar(&f.selfSigned, "self-signed", "", "`hosts`, comma separated, to make a certificate for")
	fs.StringVar(&f.caOut, "ca-out", "", "`file` to write the authority of --self-signed to")
	fs.BoolVar(&f.verbose, "v", false, "log one line per dispatch")
	if err := fs.Parse(args); err != nil {
		return f, fmt.Errorf("reading flags: %w", err)
	}
	if fs.NArg() > 0 {
		return f, fmt.Errorf("reading flags: unexpected argument %q", fs.Arg(0))
	}
	return f, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f, err := parse(args, stderr)
	if err != nil {
		return err
	}
	opts, err := f.options(stderr)
	if err != nil {
		return err
	}
	conf, err := f.tls()
	if err != nil {
		return err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	s := upstream.New(opts)
	served := make(chan error, 1)
	go func() {
		if conf != nil {
			served <- s.ServeTLS(ln, conf)
		} else {
			served <- s.Serve(ln)
		}
	}()
	scheme := "http"
	if conf != nil {
		scheme = "https"
	}
	if _, err := fmt.Fprintf(stdout, "causeway-upstream listening on %s://%s\n", scheme, ln.Addr()); err != nil {
		return fmt.Errorf("writing the address: %w", err)
	}
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if err := s.Shutdown(grace); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stopping: %w", err)
	}
	return <-served
}

func (f flags) options(stderr io.Writer) (upstream.Options, error) {
	opts := upstream.Options{Mode: upstream.Mode(f.mode), Accounts: map[string]string{}}
	switch opts.Mode {
	case upstream.ModeByPath, upstream.ModePlatform, upstream.ModeChatGPT:
	default:
		return opts, fmt.Errorf("--mode %q: want platform or chatgpt", f.mode)
	}
	if f.verbose {
		opts.Log = slog.New(slog.NewTextHandler(stderr, nil))
	}
	if f.script != "" {
		b, err := os.ReadFile(f.script)
		if err != nil {
			return opts, fmt.Errorf("--script: %w", err)
		}
		if opts.Script, err = upstream.ParseScript(b); err != nil {
			return opts, fmt.Errorf("--script %s: %w", f.script, err)
		}
	}
	lines, err := f.accountLines()
	if err != nil {
		return opts, err
	}
	for i, line := range lines {
		name, token, ok := strings.Cut(line, "=")
		if !ok || name == "" || token == "" {
			return opts, fmt.Errorf("account %d: want name=token", i+1) // the line itself may be a token
		}
		opts.Accounts[token] = name
	}
	return opts, nil
}

func (f flags) accountLines() ([]string, error) {
	lines := f.accounts
	if f.accountsFile == "" {
		return lines, nil
	}
	file, err := os.Open(f.accountsFile)
	if err != nil {
		return nil, fmt.Errorf("--accounts: %w", err)
	}
	defer file.Close()
	sc := bufio.NewScanner(file)
	for sc.Scan() {
		if line := strings.TrimSpace(sc.Text()); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("--accounts: %w", err)
	}
	return lines, nil
}

func (f flags) tls() (*tls.Config, error) {
	switch {
	case f.selfSigned != "" && f.tlsCert != "":
		return nil, errors.New("--self-signed and --tls-cert exclude each other")
	case f.caOut != "" && f.selfSigned == "":
		return nil, errors.New("--ca-out needs --self-signed")
	case f.selfSigned != "":
		conf, ca, err := upstream.SelfSigned(strings.Split(f.selfSigned, ",")...)
		if err != nil {
			return nil, fmt.Errorf("--self-signed: %w", err)
		}
		if f.caOut != "" {
			if err := os.WriteFile(f.caOut, ca, 0o644); err != nil { // a public certificate
				return nil, fmt.Errorf("--ca-out: %w", err)
			}
		}
		return conf, nil
	case f.tlsCert != "" || f.tlsKey != "":
		cert, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
		return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
	default:
		return nil, nil
	}
}
