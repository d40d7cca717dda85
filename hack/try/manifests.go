package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// object is one manifest.
type object map[string]any

// manifests are the samples, and what the run needs to know of them.
type manifests struct {
	objects  []object
	provider string
	// tokens maps an account to its key, for the scripted upstream.
	tokens    map[string]string
	clientKey string
	model     string
}

// read takes every manifest of a folder but kustomize's own.
func read(dir string) (*manifests, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	m := &manifests{tokens: map[string]string{}, model: "gpt-5.5"}
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for part := range bytes.SplitSeq(content, []byte("\n---")) {
			var o object
			if err := yaml.Unmarshal(part, &o); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if len(o) > 0 {
				m.objects = append(m.objects, o)
			}
		}
	}
	return m, m.understand()
}

func (m *manifests) understand() error {
	pool, bridge := m.find("AccountPool", ""), m.find("BridgePolicy", "")
	if pool == nil || bridge == nil {
		return errors.New("the samples need an AccountPool and a BridgePolicy")
	}
	m.provider = text(pool, "spec", "provider", "type")
	accounts, _ := at(pool, "spec", "accounts").([]any)
	for _, a := range accounts {
		account, _ := a.(map[string]any)
		value, err := m.secret(text(account, "apiKey", "secretRef", "name"), text(account, "apiKey", "secretRef", "key"))
		if err != nil {
			return fmt.Errorf("account %s: %w", text(account, "name"), err)
		}
		m.tokens[text(account, "name")] = value
	}
	if len(m.tokens) < 2 {
		return errors.New("the samples need two accounts, so that one can take over from the other")
	}
	var err error
	if m.clientKey, err = m.secret(text(bridge, "spec", "clients", "keysSecretRef", "name"), ""); err != nil {
		return fmt.Errorf("client keys: %w", err)
	}
	return nil
}

// write puts the manifests into dir, with the pool's endpoint replaced.
func (m *manifests) write(dir, endpoint, ca string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for i, o := range m.objects {
		if o["kind"] == "AccountPool" {
			provider, found := at(o, "spec", "provider").(map[string]any)
			if !found {
				return errors.New("AccountPool has no spec.provider")
			}
			provider["endpoint"], provider["caBundle"] = endpoint, ca
		}
		content, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%02d-%s.yaml", i, strings.ToLower(fmt.Sprint(o["kind"])))
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// find returns the object of a kind; an empty name means the first.
func (m *manifests) find(kind, name string) object {
	i := slices.IndexFunc(m.objects, func(o object) bool {
		return o["kind"] == kind && (name == "" || text(o, "metadata", "name") == name)
	})
	if i < 0 {
		return nil
	}
	return m.objects[i]
}

// secret returns the value of a key; an empty key means the first in order.
func (m *manifests) secret(name, key string) (string, error) {
	o := m.find("Secret", name)
	if name == "" || o == nil {
		return "", fmt.Errorf("the samples have no Secret %q", name)
	}
	plain, _ := o["stringData"].(map[string]any)
	encoded, _ := o["data"].(map[string]any)
	if key == "" {
		var keys []string
		for k := range plain {
			keys = append(keys, k)
		}
		for k := range encoded {
			keys = append(keys, k)
		}
		if len(keys) == 0 {
			return "", fmt.Errorf("secret %s is empty", name)
		}
		slices.Sort(keys)
		key = keys[0]
	}
	if value, found := plain[key].(string); found {
		return value, nil
	}
	value, _ := encoded[key].(string)
	decoded, err := base64.StdEncoding.DecodeString(value)
	if err != nil || len(decoded) == 0 {
		return "", fmt.Errorf("secret %s has no usable key %q", name, key)
	}
	return string(decoded), nil
}

func at(o map[string]any, path ...string) any {
	var value any = o
	for _, name := range path {
		fields, _ := value.(map[string]any)
		value = fields[name]
	}
	return value
}

func text(o map[string]any, path ...string) string {
	s, _ := at(o, path...).(string)
	return s
}
