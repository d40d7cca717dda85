package conversation

import (
	"fmt"
	"strings"
)

// The sizes below make requests of the size real coding agents send: their
// instructions take about 20 KB, and what a tool prints some more each time.
const (
	instructionLines = 260
	outputLines      = 90
)

func instructions() string {
	var b strings.Builder
	b.WriteString("You are a coding agent. Work in the folder you are given and report what you did.\n")
	for i := range instructionLines {
		fmt.Fprintf(&b, "%d. Read a file before you change it, and run its tests afterwards (rule %d).\n", i+1, i+1)
	}
	return b.String()
}

// FileListing is what the tool of the conversation prints, about 5 KB.
func FileListing(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "listing %d\n", n)
	for i := range outputLines {
		fmt.Fprintf(&b, "-rw-r--r-- 1 user user %7d src/part%02d/file%03d.go\n", (n+1)*1009+i*37, n, i)
	}
	return b.String()
}

func tools() []any {
	text := map[string]any{"type": "string"}
	return []any{
		map[string]any{
			"type": "function", "name": "shell", "strict": false,
			"description": "Runs a command and returns what it printed.",
			"parameters": map[string]any{
				"type": "object", "required": []string{"command"},
				"properties": map[string]any{"command": map[string]any{"type": "array", "items": text}, "workdir": text},
			},
		},
		map[string]any{
			"type": "function", "name": "update_plan", "strict": false,
			"description": "Shows the plan to the user.",
			"parameters": map[string]any{
				"type": "object", "required": []string{"plan"},
				"properties": map[string]any{"plan": map[string]any{"type": "array", "items": text}, "explanation": text},
			},
		},
	}
}
