package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	case "upgrade", "image":
		before, err := b.get(ctx)
		if err != nil {
			return "", err
		}
		if name == "image" {
			err = b.patch(ctx, fmt.Sprintf(`{"spec":{"image":{"reference":%q}}}`, b.image+":"+of))
		} else {
			err = b.restart(ctx, n)
		}
		if err != nil {
			return "", err
		}
		return b.settled(ctx, before)
	case "rollback":
		return b.rollback(ctx)
	case "evict":
		return b.evict(ctx)
	case "blocked":
		return b.blocked(ctx, n)
	case "freeze":
		return b.freeze(ctx, n)
	case "operator", "api":
		lasting, err := strconv.Atoi(of)
		if err != nil {
			return "", fmt.Errorf("how long? write %s:SECONDS", name)
		}
		if name == "operator" {
			return withoutOperator(ctx, time.Duration(lasting)*time.Second)
		}
		return stop(ctx, "kube-apiserver", time.Duration(lasting)*time.Second)
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

func (b *bridge) patch(ctx context.Context, patch string) error {
	_, err := kubectl(ctx, "-n", b.namespace, "patch", "bp", b.name, "--type=merge", "-p", patch)
	return err
}

func (b *bridge) annotate(ctx context.Context, name, value string) error {
	return b.patch(ctx, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, name, value))
}

// restart is an upgrade to what there is already, the n-th thing that is done.
func (b *bridge) restart(ctx context.Context, n int) error {
	return b.annotate(ctx, v1alpha1.AnnotationRestartedAt, fmt.Sprintf("%d-%d", time.Now().Unix(), n))
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
	pods, err := b.pods(ctx, "")
	if err != nil {
		return "", err
	}
	node, n := pods[0].node, 0
	for _, p := range pods {
		if p.node != node {
			continue
		}
		n++
		for {
			out, err := b.evictPod(ctx, p.name)
			if err == nil || strings.Contains(out, "not found") {
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
				return fmt.Sprintf("%d pods of node %s", n, node), nil
			}
		}
		if err := pause(ctx, time.Second); err != nil {
			return "", err
		}
	}
}

// blocked upgrades, and tries to evict a pod that still finishes its streams: that must
// be refused (T53). When they have ended it must go.
func (b *bridge) blocked(ctx context.Context, n int) (string, error) {
	before, err := b.get(ctx)
	if err != nil {
		return "", err
	}
	pods, err := b.pods(ctx, string(before.Status.ActiveSlot))
	if err != nil {
		return "", err
	}
	if err := b.restart(ctx, n); err != nil {
		return "", err
	}
	if err := b.reached(ctx, v1alpha1.StepDraining); err != nil {
		return "", err
	}
	out, err := b.evictPod(ctx, pods[0].name)
	if err == nil || !strings.Contains(out, "disruption budget") {
		return "", fmt.Errorf("the eviction of %s, which drains, was answered with %q", pods[0].name, out)
	}
	steps, err := b.settled(ctx, before)
	if err != nil {
		return steps, err
	}
	for { // the budget is that of a slot that rests, once the controller of budgets has seen it
		if out, err := b.evictPod(ctx, pods[0].name); err == nil || strings.Contains(out, "not found") {
			return "refused while it drained: " + steps, nil
		}
		if err := pause(ctx, time.Second); err != nil {
			return steps, fmt.Errorf("%s has drained and cannot be evicted: %w", pods[0].name, err)
		}
	}
}

// pod is one of the bridge's proxies.
type pod struct{ node, name string }

// pods are those of a slot; of all if slot is empty.
func (b *bridge) pods(ctx context.Context, slot string) (list []pod, err error) {
	selector := v1alpha1.LabelPolicy + "=" + b.name
	if slot != "" {
		selector += "," + v1alpha1.LabelSlot + "=" + slot
	}
	raw, err := kubectl(ctx, "-n", b.namespace, "get", "pods", "-l", selector, "-o",
		`jsonpath={range .items[*]}{.spec.nodeName}{" "}{.metadata.name}{"\n"}{end}`)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(raw)) {
		node, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		list = append(list, pod{node, name})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no pods with %s", selector)
	}
	return list, nil
}

// evictPod asks for one eviction, and returns what was answered.
func (b *bridge) evictPod(ctx context.Context, name string) (string, error) {
	create := exec.CommandContext(ctx, "kubectl", "create", "--raw", //nolint:gosec // our own arguments
		"/api/v1/namespaces/"+b.namespace+"/pods/"+name+"/eviction", "-f", "-")
	create.Stdin = strings.NewReader(fmt.Sprintf(
		`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q}}`, name, b.namespace))
	out, err := create.CombinedOutput()
	return string(out), err
}

// reached waits until the rollout is in one of steps.
func (b *bridge) reached(ctx context.Context, steps ...v1alpha1.RolloutStep) error {
	for {
		p, err := b.get(ctx)
		if err == nil && p.Status.Rollout != nil && slices.Contains(steps, p.Status.Rollout.Step) {
			return nil
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
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
	if err := b.restart(ctx, n); err != nil {
		return "", err
	}
	// The slots are about to change.
	if err := b.reached(ctx, v1alpha1.StepReady, v1alpha1.StepHandover); err != nil {
		return "", err
	}
	if err := signalled(ctx, pids, time.Minute); err != nil {
		return "", err
	}
	steps, err := b.settled(ctx, before)
	return "captain " + pod + ": " + steps, err
}

// withoutOperator lets there be none for a while. One that only stood still would be
// started anew by its node, before long.
func withoutOperator(ctx context.Context, lasting time.Duration) (string, error) {
	raw, err := kubectl(ctx, "get", "deployments", "-A", "-l", "app.kubernetes.io/name=causeway-operator", "-o",
		`jsonpath={range .items[*]}{.metadata.namespace}{" "}{.metadata.name}{" "}{.spec.replicas}{end}`)
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(raw))
	if len(fields) != 3 {
		return "", fmt.Errorf("one Deployment of the operator is wanted, not %q", raw)
	}
	namespace, deployment := fields[0], "deployment/"+fields[1]
	if _, err := kubectl(ctx, "-n", namespace, "scale", deployment, "--replicas=0"); err != nil {
		return "", err
	}
	if err := pause(ctx, lasting); err != nil {
		return "", err
	}
	if _, err := kubectl(ctx, "-n", namespace, "scale", deployment, "--replicas="+fields[2]); err != nil {
		return "", err
	}
	_, err = kubectl(ctx, "-n", namespace, "rollout", "status", deployment, "--timeout=120s")
	return fmt.Sprintf("no operator for %s", lasting), err
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
