package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc; USER_HZ is 100 on every Linux.
const tick = 10 * time.Millisecond

// family is a process and its children: nginx works in those.
func family(pid int) []int {
	pids := []int{pid}
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return pids
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for _, f := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(f); err == nil {
				pids = append(pids, family(child)...)
			}
		}
	}
	return pids
}

// cpuOf is the user and system time that a process and its children have used.
func cpuOf(pid int) (time.Duration, error) {
	var sum time.Duration
	for _, p := range family(pid) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
		if err != nil {
			return 0, err
		}
		// The name in parentheses may hold anything; user and system time are the
		// 12th and 13th field after it.
		_, after, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(after)
		if len(fields) < 13 {
			return 0, fmt.Errorf("/proc/%d/stat has another form than expected", p)
		}
		for _, f := range fields[11:13] {
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("/proc/%d/stat: %w", p, err)
			}
			sum += time.Duration(n) * tick
		}
	}
	return sum, nil
}

// memoryOf is the resident memory of a process and its children in bytes; pages
// that several share count once.
func memoryOf(pid int) (int64, error) {
	var sum int64
	for _, p := range family(pid) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p))
		if err != nil {
			return 0, err
		}
		n, err := kilobytes(string(text), "Pss:")
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/smaps_rollup: %w", p, err)
		}
		sum += n << 10
	}
	return sum, nil
}

func kilobytes(text, name string) (int64, error) {
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name); found {
			return strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		}
	}
	return 0, fmt.Errorf("no line %s", name)
}

// machine is the CPU time that the whole machine has used and had.
type machine struct{ busy, total time.Duration }

func readMachine() (machine, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return machine{}, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	var m machine
	// user nice system idle iowait irq softirq steal; guest times are in user.
	for i, f := range strings.Fields(first) {
		if i == 0 || i > 8 {
			continue
		}
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return machine{}, fmt.Errorf("/proc/stat: %w", err)
		}
		m.total += time.Duration(n) * tick
		if i != 4 && i != 5 {
			m.busy += time.Duration(n) * tick
		}
	}
	return m, nil
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
