package effective_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/test/cel/cases"
)

var unset = regexp.MustCompile(`Unset means (\w+)[.,]`)

// documented maps each field of a spec to what its comment says that unset means,
// as far as that is one word.
func documented(t *testing.T, kind string) map[string]string {
	t.Helper()
	found := map[string]string{}
	spec, _ := cases.Schema(t, crds, kind)["properties"].(cases.Object)["spec"].(cases.Object)
	describe(spec, "", found)
	return found
}

func describe(schema cases.Object, at string, found map[string]string) {
	text := strings.Join(strings.Fields(fmt.Sprint(schema["description"])), " ")
	if m := unset.FindStringSubmatch(text); m != nil {
		found[at] = m[1]
	}
	properties, _ := schema["properties"].(cases.Object)
	if items, ok := schema["items"].(cases.Object); ok {
		properties, _ = items["properties"].(cases.Object)
	}
	for name, p := range properties {
		if property, ok := p.(cases.Object); ok {
			describe(property, strings.TrimPrefix(at+"."+name, "."), found)
		}
	}
}

// object is a value as JSON gives it.
func object(t *testing.T, v any) cases.Object {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out cases.Object
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestCommentsTellTheDefaults of a CircuitPolicy, whose bundle has the same names.
func TestCommentsTellTheDefaults(t *testing.T) {
	built := object(t, builtIn(t))
	n := 0
	for field, says := range documented(t, v1alpha1.KindCircuitPolicy) {
		block, name, ok := strings.Cut(field, ".")
		group, isBlock := built[block].(cases.Object)
		if !ok || !isBlock || says == "all" {
			continue
		}
		n++
		if is := fmt.Sprint(group[name]); is != says {
			t.Errorf("%s: the comment says that unset means %s, it means %s", field, says, is)
		}
	}
	if n != 35 {
		t.Errorf("compared %d fields, want 35: did a comment lose its default?", n)
	}
}

// TestCommentsTellTheDefaultsOfABridge compares comments with Settings.
func TestCommentsTellTheDefaultsOfABridge(t *testing.T) {
	s := effective.SettingsOf(&v1alpha1.BridgePolicy{})
	want := map[string]any{
		"management":                                s.Management,
		"replicas":                                  s.Replicas,
		"pod.securityProfile.custom.runAsUser":      s.RunAsUser,
		"pod.securityProfile.custom.fsGroup":        s.FSGroup,
		"service.type":                              s.ServiceType,
		"service.port":                              s.ServicePort,
		"service.exposePreview":                     s.ExposePreview,
		"rollout.blueGreen.promotion":               s.Promotion,
		"rollout.blueGreen.readySeconds":            s.ReadySeconds,
		"rollout.blueGreen.overlapSeconds":          s.OverlapSeconds,
		"rollout.blueGreen.retainSeconds":           s.RetainSeconds,
		"rollout.blueGreen.progressDeadlineSeconds": s.ProgressSeconds,
		"rollout.blueGreen.drainDeadlineSeconds":    s.DrainDeadline,
		"activation.holdSeconds":                    s.HoldSeconds,
		"activation.leaseDurationSeconds":           s.LeaseSeconds,
		"activation.renewDeadlineSeconds":           s.RenewSeconds,
		"activation.retryPeriodSeconds":             s.RetrySeconds,
		"activation.forceAfterSeconds":              s.ForceAfterSeconds,
		"drain.softSeconds":                         s.DrainSoftSeconds,
		"drain.podGraceSeconds":                     s.PodGraceSeconds,
		"drain.preStopSeconds":                      s.PreStopSeconds,
		"drain.endpointLagSeconds":                  s.EndpointLagSeconds,
		"clients.mode":                              s.ClientsMode,
		"store.redis.tls":                           s.StoreTLS,
		"reporting.mode":                            s.ReportingMode,
		"reporting.minIntervalSeconds":              s.ReportSeconds,
	}
	says := documented(t, v1alpha1.KindBridgePolicy)
	for field, value := range want {
		if got := fmt.Sprint(value); says[field] != got {
			t.Errorf("%s: the comment says that unset means %q, it means %q", field, says[field], got)
		}
	}
}

func TestCommentsTellTheDefaultsOfAPool(t *testing.T) {
	pool, errs := effective.Pool(minimalPool())
	if len(errs) != 0 {
		t.Fatal(errs)
	}
	says := documented(t, v1alpha1.KindAccountPool)
	for field, value := range map[string]any{
		"accounts.state":    pool.Accounts[0].State,
		"accounts.weight":   pool.Accounts[0].Weight,
		"accounts.priority": pool.Accounts[0].Priority,
		"strategy":          pool.Strategy,
		"capacityScope":     pool.CapacityScope,
	} {
		if got := fmt.Sprint(value); says[field] != got {
			t.Errorf("%s: the comment says that unset means %q, it means %q", field, says[field], got)
		}
	}
}

func minimalPool() *v1alpha1.AccountPool {
	p := &v1alpha1.AccountPool{}
	p.Name = "team"
	p.Spec.Provider.Type = v1alpha1.ProviderOpenAIPlatform
	p.Spec.Accounts = []v1alpha1.Account{{
		Name:   "a",
		APIKey: &v1alpha1.APIKey{SecretRef: v1alpha1.SecretKeyReference{Name: "keys", Key: "a"}},
	}}
	return p
}

func ptr[T any](v T) *T { return &v }

func TestPoolResolves(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.AccountPool)
		want   func(*bundle.Pool)
	}{
		"built-in endpoint of the platform": {
			change: func(*v1alpha1.AccountPool) {},
			want:   func(b *bundle.Pool) { b.Provider.Endpoint = "https://api.openai.com/v1" },
		},
		"built-in endpoint of ChatGPT": {
			change: func(p *v1alpha1.AccountPool) { p.Spec.Provider.Type = v1alpha1.ProviderChatGPT },
			want: func(b *bundle.Pool) {
				b.Provider = bundle.Provider{Type: "ChatGPT", Endpoint: "https://chatgpt.com/backend-api/codex"}
			},
		},
		"own endpoint loses its final slash": {
			change: func(p *v1alpha1.AccountPool) { p.Spec.Provider.Endpoint = "https://llm.example.com/v1/" },
			want:   func(b *bundle.Pool) { b.Provider.Endpoint = "https://llm.example.com/v1" },
		},
		"weight 0 is not unset": {
			change: func(p *v1alpha1.AccountPool) { p.Spec.Accounts[0].Weight = ptr(int32(0)) },
			want:   func(b *bundle.Pool) { b.Accounts[0].Weight = 0 },
		},
		"everything else": {
			change: func(p *v1alpha1.AccountPool) {
				a := &p.Spec.Accounts[0]
				a.State, a.Priority, a.Models = v1alpha1.AccountDraining, ptr(int32(3)), []string{"gpt-5"}
				a.Limits = &v1alpha1.AccountLimits{MaxConcurrent: ptr(int32(4)), RequestsPerMinute: ptr(int32(5)), TokensPerMinute: ptr(int32(6))}
				p.Spec.Strategy = &v1alpha1.Strategy{
					Type: v1alpha1.StrategySingleAccount, SingleAccount: &v1alpha1.SingleAccount{AccountName: "a"},
				}
				p.Spec.CapacityScope = v1alpha1.CapacityShared
				p.Spec.Quotas = []v1alpha1.Quota{{Name: "q", Unit: v1alpha1.QuotaTokens, Window: v1alpha1.QuotaDay, Limit: 7}}
			},
			want: func(b *bundle.Pool) {
				b.Accounts[0] = bundle.Account{
					Name: "a", Kind: bundle.KindAPIKey, State: bundle.AccountDraining, Weight: 100, Priority: 3,
					MaxConcurrent: 4, RequestsPerMinute: 5, TokensPerMinute: 6, Models: []string{"gpt-5"},
				}
				b.Strategy, b.SingleAccount, b.CapacityScope = bundle.StrategySingleAccount, "a", "Shared"
				b.Quotas = []bundle.Quota{{Name: "q", Unit: "Tokens", Window: "Day", Limit: 7, SoftLimitPercent: 100}}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := minimalPool()
			tc.change(p)
			want := bundle.Pool{
				Name:     "team",
				Provider: bundle.Provider{Type: bundle.ProviderOpenAIPlatform, Endpoint: effective.EndpointOpenAIPlatform},
				Accounts: []bundle.Account{{Name: "a", Kind: bundle.KindAPIKey, State: bundle.AccountEnabled, Weight: 100}},
				Strategy: bundle.StrategyLeastLoaded, CapacityScope: "PerReplica",
			}
			tc.want(&want)
			got, errs := effective.Pool(p)
			if len(errs) != 0 {
				t.Fatal(errs)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestEchoHasEveryNumber: the flat names of the status are the nested ones.
func TestEchoHasEveryNumber(t *testing.T) {
	circuit := builtIn(t)
	echo := object(t, effective.Echo(circuit))
	blocks := map[string]string{
		"retryCircuit": "retry", "breaker": "breaker", "quarantine": "quarantine", "ejection": "ejection", "deadlines": "",
	}
	want := cases.Object{
		"httpMaxConcurrent": 200.0, "httpMaxQueued": 400.0, "httpQueueTimeoutSeconds": 30.0,
	}
	bulkheads, _ := object(t, circuit)["bulkheads"].([]any)
	for _, b := range bulkheads {
		lane, _ := b.(cases.Object)
		lane["mode"] = string(v1alpha1.BulkheadLimited)
	}
	want["lanes"] = bulkheads
	for block, prefix := range blocks {
		numbers, _ := object(t, circuit)[block].(cases.Object)
		for name, value := range numbers {
			if number, ok := value.(float64); ok {
				key := prefix + strings.ToUpper(name[:1]) + name[1:]
				if prefix == "" {
					key = name
				}
				want[key] = number
			}
		}
	}
	if diff := cmp.Diff(want, echo); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestAnUnlimitedLaneIsVisible(t *testing.T) {
	circuit := builtIn(t)
	circuit.Bulkheads[2].MaxConcurrent, circuit.Bulkheads[2].MaxQueued = 0, 0
	lane := effective.Echo(circuit).Lanes[2]
	if want := (v1alpha1.EffectiveLane{Lane: v1alpha1.LaneCompact, Mode: v1alpha1.BulkheadUnlimited, QueueTimeoutSeconds: 30}); lane != want {
		t.Errorf("got %+v, want %+v", lane, want)
	}
}

// TestCertificatesHaveToParse: CEL sees only the frame.
func TestCertificatesHaveToParse(t *testing.T) {
	const begin, end = "-----BEGIN CERTIFICATE-----\n", "-----END CERTIFICATE-----\n"
	whole := ""
	for _, table := range cases.Load(t) {
		if table.Kind == v1alpha1.KindAccountPool {
			whole = decode[v1alpha1.AccountPool](t, table.Full[0]).Spec.Provider.CABundle
		}
	}
	for name, tc := range map[string]struct {
		text string
		ok   bool
	}{
		"one":                      {whole, true},
		"two, with text between":   {whole + "# the old one\n" + whole, true},
		"damaged base64":           {begin + "???\n" + end, false},
		"no certificate":           {begin + "AAAA\n" + end, false},
		"a good and a damaged one": {whole + begin + "AAAA\n" + end, false},
		"a block of another type":  {whole + "-----BEGIN TRUSTED CERTIFICATE-----\nAAAA\n-----END TRUSTED CERTIFICATE-----\n", false},
		"end before the beginning": {end + begin, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := minimalPool()
			p.Spec.Provider.CABundle = tc.text
			_, errs := effective.Pool(p)
			if ok := len(errs) == 0; ok != tc.ok {
				t.Errorf("accepted: %t, %v", ok, errs)
			}
		})
	}
}
