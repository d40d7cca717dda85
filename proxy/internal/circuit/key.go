package circuit

import "strings"

// Key names a route: what fails and heals as one.
type Key struct {
	// Host is that of the upstream, with its port if it is not the usual one.
	Host string
	// Family is the API: "responses" or "codex-responses", for example.
	Family string
	// Transport is "http" or "websocket".
	Transport string
}

// String is the key in logs, metrics and commands.
func (k Key) String() string {
	if k.Family == "" && k.Transport == "" {
		return k.Host
	}
	return k.Host + "/" + k.Family + "/" + k.Transport
}

// ParseKey reads what String wrote.
func ParseKey(s string) (Key, bool) {
	parts := strings.Split(s, "/")
	switch {
	case len(parts) == 1 && parts[0] != "":
		return Key{Host: parts[0]}, true
	case len(parts) == 3 && parts[0] != "":
		return Key{parts[0], parts[1], parts[2]}, true
	}
	return Key{}, false
}
