package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	empty := t.TempDir()
	tests := []struct {
		name, args     string
		code           int
		stdout, stderr string
	}{
		{"version", "--version", 0, "dev", ""},
		{"help", "--help", 0, "", "folder with bundle.json"},
		{"no configuration", "", 1, "", "causeway-proxy: no configuration: name the folder that holds it, --config DIR"},
		{"empty folder", "--config " + empty, 1, "", "causeway-proxy: configuration in " + empty},
		{"missing folder", "--config " + empty + "/none", 1, "", "none"},
		{"unknown flag", "--port 1", 2, "", "-port"},
		{"argument", "serve", 2, "", `unexpected argument "serve"`},
		{"log level", "--log-level loud", 2, "", "debug, info, warn, error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(strings.Fields(tt.args), &stdout, &stderr)
			if code != tt.code || !strings.Contains(stdout.String(), tt.stdout) || !strings.Contains(stderr.String(), tt.stderr) {
				t.Errorf("code %d, stdout %q, stderr %q", code, &stdout, &stderr)
			}
		})
	}
}
