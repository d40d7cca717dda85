package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// bridge is the BridgePolicy under test.
type bridge struct{ namespace, name, image string }

// do does one thing to the bridge, or to what it stands on, and returns when the
// bridge has settled.
func (b *bridge) do(ctx context.Context, act string, n int) (what string, err error) {
	name, of, _ := strings.Cut(act, ":")
	switch name {
	case "upgrade":
		before, err := b.get(ctx)
		if err != nil {
			return "", err
		}
		if err := b.annotate(ctx, v1alpha1.AnnotationRestartedAt, fmt.Sprintf("%d-%d", time.Now().Unix(), n)); err != nil {
			return "", err
		}
		return b.settled(ctx, before)
	case "image":
		before, err := b.get(ctx)
		if err != nil {
			return "", err
		}
		patch := fmt.Sprintf(`{"spec":{"image":{"reference":%q}}}`, b.image+":"+of)
		if _, err := kubectl(ctx, "-n", b.namespace, "patch", "bp", b.name, "--type=merge", "-p", patch); err != nil {
			return "", err
		}
		return b.settled(ctx, before)
	case "rollback":
		return b.rollback(ctx)
	case "evict":
		return b.evict(ctx)
	case "freeze":
		return b.freeze(ctx, n)
	case "operator", "api":
		lasting, err := strconv.Atoi(of)
		if err != nil {
			return "", fmt.Errorf("how long? write %s:SECONDS", name)
		}
		return stop(ctx, map[string]string{"operator": "causeway-operator", "api": "kube-apiserver"}[name], time.Duration(lasting)*time.Second)
	}
	return "", fmt.Errorf("nobody knows how to %q", act)
}

func kubectl(ctx context.Context, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, "kubectl", args...).Output() //nolint:gosec // our own arguments
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("kubectl %s: %s", strings.Join(args, " "), exit.Stderr)
	}
	return out, err
}

func (b *bridge) get(ctx context.Context) (*v1alpha1.BridgePolicy, error) {
	raw, err := kubectl(ctx, "-n", b.namespace, "get", "bp", b.name, "-o", "json")
	if err != nil {
		return nil, err
	}
	var p v1alpha1.BridgePolicy
	return &p, json.Unmarshal(raw, &p)
}

func (b *bridge) annotate(ctx context.Context, name, value string) error {
	_, err := kubectl(ctx, "-n", b.namespace, "annotate", "bp", b.name, name+"="+value, "--overwrite")
	return err
}

// settled waits until another slot is active than before, and the old one is done.
func (b *bridge) settled(ctx context.Context, before *v1alpha1.BridgePolicy) (string, error) {
	var steps []string
	for {
		p, err := b.get(ctx)
		if err != nil && ctx.Err() != nil {
			return strings.Join(steps, " "), context.Cause(ctx)
		}
		if err == nil && p.Status.Rollout != nil {
			step := string(p.Status.Rollout.Step)
			if len(steps) == 0 || steps[len(steps)-1] != step {
				steps = append(steps, step)
			}
			done := p.Status.Rollout.Step == v1alpha1.StepRetained || p.Status.Rollout.Step == v1alpha1.StepIdle
			if p.Status.ActiveSlot != before.Status.ActiveSlot && done {
				return strings.Join(steps, " "), nil
			}
		}
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return strings.Join(steps, " "), err
		}
	}
}

// rollback goes back to the slot that is retained.
func (b *bridge) rollback(ctx context.Context) (string, error) {
	before, err := b.get(ctx)
	if err != nil {
		return "", err
	}
	for _, s := range before.Status.Slots {
		if s.Role == v1alpha1.SlotRoleRetained {
			if err := b.annotate(ctx, v1alpha1.AnnotationRollbackTo, s.Revision); err != nil {
				return "", err
			}
			return b.settled(ctx, before)
		}
	}
	return "", fmt.Errorf("no slot is retained: %+v", before.Status.Slots)
}

// evict drains one node of the bridge's pods, as an upgrade of the node would.
func (b *bridge) evict(ctx context.Context) (string, error) {
	raw, err := kubectl(ctx, "-n", b.namespace, "get", "pods", "-l", v1alpha1.LabelPolicy+"="+b.name, "-o",
		`jsonpath={range .items[*]}{.spec.nodeName}{" "}{.metadata.name}{"\n"}{end}`)
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	node, _, _ := strings.Cut(lines[0], " ")
	var pods []string
	for _, line := range lines {
		if on, pod, _ := strings.Cut(line, " "); on == node {
			pods = append(pods, pod)
		}
	}
	for _, pod := range pods {
		body := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q}}`, pod, b.namespace)
		for {
			create := exec.CommandContext(ctx, "kubectl", "create", "--raw", //nolint:gosec // our own arguments
				"/api/v1/namespaces/"+b.namespace+"/pods/"+pod+"/eviction", "-f", "-")
			create.Stdin = strings.NewReader(body)
			if out, err := create.CombinedOutput(); err == nil || strings.Contains(string(out), "not found") {
				break
			}
			if err := pause(ctx, time.Second); err != nil { // the budget lets no pod go yet
				return "", err
			}
		}
	}
	for {
		p, err := b.get(ctx)
		if err == nil && p.Status.ReplicaSummary != "" {
			if ready, wanted, _ := strings.Cut(p.Status.ReplicaSummary, "/"); ready == wanted {
				return fmt.Sprintf("%d pods of node %s", len(pods), node), nil
			}
		}
		if err := pause(ctx, time.Second); err != nil {
			return "", err
		}
	}
}

// freeze stops the captain for a minute in the midst of a hand-over.
func (b *bridge) freeze(ctx context.Context, n int) (string, error) {
	before, err := b.get(ctx)
	if err != nil {
		return "", err
	}
	identity, err := kubectl(ctx, "-n", b.namespace, "get", "lease", effective.ActivationLease(b.name), "-o", "jsonpath={.spec.holderIdentity}")
	if err != nil {
		return "", err
	}
	holder, _ := bundle.ParseHolder(string(identity))
	pod := holder.Pod
	pids := processes(func(cmdline, environment string) bool {
		return strings.Contains(cmdline, "causeway-proxy") && strings.Contains(environment, "POD_NAME="+pod+"\x00")
	})
	if len(pids) != 1 {
		return "", fmt.Errorf("%d processes of pod %q", len(pids), pod)
	}
	if err := b.annotate(ctx, v1alpha1.AnnotationRestartedAt, fmt.Sprintf("%d-%d", time.Now().Unix(), n)); err != nil {
		return "", err
	}
	for { // until the slots are about to change
		p, err := b.get(ctx)
		if err == nil && p.Status.Rollout != nil && (p.Status.Rollout.Step == v1alpha1.StepReady || p.Status.Rollout.Step == v1alpha1.StepHandover) {
			break
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return "", err
		}
	}
	if err := signalled(ctx, pids, time.Minute); err != nil {
		return "", err
	}
	steps, err := b.settled(ctx, before)
	return "captain " + pod + ": " + steps, err
}

// stop holds a program of the cluster still for a while.
func stop(ctx context.Context, program string, lasting time.Duration) (string, error) {
	pids := processes(func(cmdline, _ string) bool {
		first, _, _ := strings.Cut(cmdline, "\x00--")
		return strings.Contains(first, program)
	})
	if len(pids) == 0 {
		return "", fmt.Errorf("no process of %s", program)
	}
	return fmt.Sprintf("%d processes of %s stood still for %s", len(pids), program, lasting), signalled(ctx, pids, lasting)
}

func signalled(ctx context.Context, pids []int, lasting time.Duration) error {
	defer func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return fmt.Errorf("stopping process %d: %w", pid, err)
		}
	}
	return pause(ctx, lasting)
}

// processes finds processes of this namespace by command line and environment.
func processes(match func(cmdline, environment string) bool) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		environment, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && pid != os.Getpid() && match(string(cmdline), string(environment)+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}
