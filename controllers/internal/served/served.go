// Package served judges whether the API server serves our kinds as this
// operator needs them. It asks the API server's own description, so it needs no
// permission on CustomResourceDefinitions and no version number that somebody
// must remember to raise.
package served

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/openapi"
	"k8s.io/utils/clock"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

const (
	// keepGood is how long a good answer is believed: definitions change by hand
	// and rarely.
	keepGood = 5 * time.Minute
	// keepBad bounds how often a probe asks while definitions are missing.
	keepBad = 5 * time.Second
)

// kinds are what the operator reads and writes.
var kinds = map[string]any{
	v1alpha1.KindAccountPool:   v1alpha1.AccountPool{},
	v1alpha1.KindCircuitPolicy: v1alpha1.CircuitPolicy{},
	v1alpha1.KindBridgePolicy:  v1alpha1.BridgePolicy{},
	v1alpha1.KindBridgeReplica: v1alpha1.BridgeReplica{},
}

// ErrMissing says that a definition is not installed or older than needed.
var ErrMissing = errors.New("custom resource definitions are missing or too old: apply those of this version of Causeway")

// Checker is a readiness check. It is safe for concurrent use.
type Checker struct {
	client openapi.ClientWithContext
	clock  clock.PassiveClock

	mu    sync.Mutex // guards what follows
	err   error
	until time.Time
}

// NewChecker returns a Checker that asks through c.
func NewChecker(c openapi.ClientWithContext, now clock.PassiveClock) *Checker {
	return &Checker{client: c, clock: now}
}

// Check returns nil when all kinds are served as needed.
func (c *Checker) Check(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if now.Before(c.until) {
		return c.err
	}
	c.err = c.ask(ctx)
	c.until = now.Add(keepGood)
	if c.err != nil {
		c.until = now.Add(keepBad)
	}
	return c.err
}

func (c *Checker) ask(ctx context.Context) error {
	paths, err := c.client.PathsWithContext(ctx)
	if err != nil {
		return fmt.Errorf("asking the API server for its schemas: %w", err)
	}
	group, ok := paths["apis/"+v1alpha1.GroupVersion.String()]
	if !ok {
		return fmt.Errorf("%w: %s is not served", ErrMissing, v1alpha1.GroupVersion)
	}
	raw, err := group.SchemaWithContext(ctx, "application/json")
	if err != nil {
		return fmt.Errorf("reading the schemas of %s: %w", v1alpha1.GroupVersion, err)
	}
	return Judge(raw)
}

// Judge compares an OpenAPI v3 document with the Go types of our kinds.
func Judge(document []byte) error {
	var doc struct {
		Components struct {
			Schemas map[string]map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return fmt.Errorf("reading the schemas of %s: %w", v1alpha1.GroupVersion, err)
	}
	var lacking []string
	for kind, example := range kinds {
		schema := find(doc.Components.Schemas, kind)
		if schema == nil {
			lacking = append(lacking, kind)
			continue
		}
		lacking = append(lacking, missing(reflect.TypeOf(example), schema, kind)...)
	}
	if len(lacking) == 0 {
		return nil
	}
	slices.Sort(lacking)
	return fmt.Errorf("%w: not served: %s", ErrMissing, strings.Join(lacking[:min(len(lacking), 5)], ", "))
}

func find(schemas map[string]map[string]any, kind string) map[string]any {
	for _, schema := range schemas {
		list, _ := schema["x-kubernetes-group-version-kind"].([]any)
		for _, entry := range list {
			gvk, _ := entry.(map[string]any)
			if gvk["kind"] == kind && gvk["group"] == v1alpha1.GroupName {
				return schema
			}
		}
	}
	return nil
}

// missing returns the paths of fields of our own types that the schema lacks.
// Types of Kubernetes itself are not looked into.
func missing(t reflect.Type, schema map[string]any, path string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		switch t.Kind() {
		case reflect.Slice:
			schema, _ = schema["items"].(map[string]any)
		case reflect.Map:
			schema, _ = schema["additionalProperties"].(map[string]any)
		default:
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.PkgPath() != reflect.TypeFor[v1alpha1.AccountPool]().PkgPath() {
		return nil
	}
	properties, _ := schema["properties"].(map[string]any)
	var lacking []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		below, ok := properties[name].(map[string]any)
		if !ok {
			lacking = append(lacking, path+"."+name)
			continue
		}
		lacking = append(lacking, missing(t.Field(i).Type, below, path+"."+name)...)
	}
	return lacking
}
