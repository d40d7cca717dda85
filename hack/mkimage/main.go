// Command mkimage writes a container image without a container engine: one
// layer with the given files on nothing (scratch), as a tar that containerd
// (`ctr images import`, `kind load image-archive`), podman and docker load.
//
//	mkimage -o proxy.tar -ref localhost/causeway-proxy:dev -entrypoint /causeway-proxy bin/causeway-proxy=/causeway-proxy
//
// The same input gives the same bytes, so an unchanged image keeps its digest.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

// texts is a flag that may be given more than once.
type texts []string

func (t *texts) String() string { return strings.Join(*t, " ") }

func (t *texts) Set(value string) error {
	*t = append(*t, value)
	return nil
}

func run(args []string) error {
	var refs, entrypoint, env texts
	flags := flag.NewFlagSet("mkimage", flag.ContinueOnError)
	output := flags.String("o", "", "tar to write")
	user := flags.String("user", "65532:65532", "user and group the image runs as; numbers, so that runAsNonRoot can be checked")
	arch := flags.String("arch", runtime.GOARCH, "architecture of the binaries")
	flags.Var(&refs, "ref", "name of the image with its tag (may be repeated)")
	flags.Var(&entrypoint, "entrypoint", "word of the entry point (may be repeated)")
	flags.Var(&env, "env", "NAME=VALUE (may be repeated)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *output == "" || len(refs) == 0 || flags.NArg() == 0 {
		return errors.New("need -o, at least one -ref and at least one FILE=/PATH/IN/IMAGE")
	}
	img := image{refs: refs, entrypoint: entrypoint, env: env, user: *user, arch: *arch}
	for _, arg := range flags.Args() {
		source, target, found := strings.Cut(arg, "=")
		if !found || !strings.HasPrefix(target, "/") {
			return fmt.Errorf("%q is not FILE=/PATH/IN/IMAGE", arg)
		}
		f, err := readFile(source, target)
		if err != nil {
			return err
		}
		img.files = append(img.files, f)
	}
	return writeAtomically(*output, img)
}

func readFile(source, target string) (file, error) {
	info, err := os.Stat(source)
	if err != nil {
		return file{}, err
	}
	content, err := os.ReadFile(source)
	if err != nil {
		return file{}, err
	}
	mode := int64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	return file{path: strings.TrimPrefix(filepath.Clean(target), "/"), mode: mode, content: content}, nil
}

// writeAtomically leaves the old tar in place when anything fails.
func writeAtomically(path string, img image) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".mkimage-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // fails after the rename, as it should
	if err := errors.Join(img.write(tmp), tmp.Chmod(0o644), tmp.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Rename(tmp.Name(), path)
}
