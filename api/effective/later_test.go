package effective_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

func TestNotYetEffective(t *testing.T) {
	pool := func(spec string) any {
		return decodeText[v1alpha1.AccountPool](t, "spec: {"+spec+"}")
	}
	circuit := func(spec string) any {
		return decodeText[v1alpha1.CircuitPolicy](t, "spec: {"+spec+"}")
	}
	for name, tc := range map[string]struct {
		obj  any
		want []string
	}{
		"minimal pool": {minimalPool(), nil},
		"weights, limits and quotas": {
			pool("accounts: [{name: a, priority: 1, limits: {maxConcurrent: 1, requestsPerMinute: 1, tokensPerMinute: 1}}, {name: b, weight: 0}], " +
				"quotas: [{name: q}], strategy: {type: FillFirst}"), nil,
		},
		"oauth":       {pool("accounts: [{name: a, oauth: {clientID: x, tokenURL: 'https://a.b'}}]"), nil},
		"PerReplica":  {pool("capacityScope: PerReplica"), nil},
		"Partitioned": {pool("capacityScope: Partitioned"), nil},

		"deadlines": {circuit("deadlines: {connectSeconds: 1, callerMaxSeconds: 1}"), nil},
		"bulkheads": {circuit("bulkheads: [{lane: HTTP, maxConcurrent: 1, maxQueued: 0}, {lane: Media, mode: Unlimited}]"), nil},
		"circuits": {
			circuit("retryCircuit: {failureThreshold: 3, maxAttempts: 3, budgetPercent: 10, retryOn: [Status429]}, breaker: {}, quarantine: {}, ejection: {}"), nil,
		},

		"minimal bridge": {bridge(t, ""), nil},
		"bridge that works": {
			bridge(t, "replicas: 3, management: Paused, store: {type: Memory}, drain: {softSeconds: 1}, service: {exposePreview: Disabled}"), nil,
		},
		"bridge with Redis": {
			bridge(t, "store: {type: Redis, redis: {addresses: ['a:1'], tls: Enabled, authSecretRef: {name: s, key: k}}}"), nil,
		},
		"bridge": {
			bridge(t, "autoscaling: {maxReplicas: 3}, activation: {}, "+
				"rollout: {type: BlueGreen}, service: {exposePreview: Enabled}"),
			nil,
		},
		"other kind": {&v1alpha1.BridgeReplica{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, effective.NotYetEffective(tc.obj)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	partitioned := bundle.Pool{CapacityScope: "Partitioned", Accounts: []bundle.Account{{Name: "a", MaxConcurrent: 3}, {Name: "b"}}}
	const redis = "store: {type: Redis, redis: {addresses: ['a:1']}}"
	for name, tc := range map[string]struct {
		spec string
		pool bundle.Pool
		want []string
	}{
		"default":                  {"", bundle.Pool{}, []string{v1alpha1.ReasonMemoryStore}},
		"one replica":              {"replicas: 1", bundle.Pool{}, nil},
		"Redis":                    {redis, bundle.Pool{CapacityScope: "Shared"}, nil},
		"Shared without Redis":     {"replicas: 1", bundle.Pool{CapacityScope: "Shared"}, []string{v1alpha1.ReasonMemoryStore}},
		"open":                     {"replicas: 1, clients: {mode: Open}", bundle.Pool{}, []string{v1alpha1.ReasonOpenClients}},
		"replicas up to the limit": {"replicas: 3, " + redis, partitioned, nil},
		"replicas above the limit": {"replicas: 4, " + redis, partitioned, []string{v1alpha1.ReasonCapacityExceeded}},
		"autoscaling above the limit": {
			"autoscaling: {maxReplicas: 4}, " + redis,
			partitioned,
			[]string{v1alpha1.ReasonCapacityExceeded},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := decodeText[v1alpha1.BridgePolicy](t, "spec: {"+tc.spec+"}")
			var got []string
			for _, w := range effective.Warnings(b, tc.pool) {
				got = append(got, w.Reason)
				if w.Message == "" || len(w.Message) > 512 {
					t.Errorf("message of %d bytes: %q", len(w.Message), w.Message)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestSettings(t *testing.T) {
	for name, tc := range map[string]struct {
		spec string
		want func(*effective.Settings)
	}{
		"defaults": {"", func(s *effective.Settings) { s.MaxReplicas = 2 }},
		"replicas 0": {"replicas: 0", func(s *effective.Settings) {
			s.Replicas, s.MaxReplicas = 0, 0
		}},
		"a reference pins": {"image: {reference: a}", func(s *effective.Settings) {
			s.MaxReplicas, s.UpgradePolicy = 2, v1alpha1.UpgradePinned
		}},
		"a reference that follows": {
			"image: {reference: a, upgradePolicy: FollowOperator}",
			func(s *effective.Settings) { s.MaxReplicas = 2 },
		},
		"autoscaling to 1": {"autoscaling: {maxReplicas: 1}", func(s *effective.Settings) {
			s.Autoscaled, s.Replicas, s.MaxReplicas, s.TargetCPUPercent = true, 1, 1, 70
		}},
		"autoscaling by sessions": {"autoscaling: {minReplicas: 3, maxReplicas: 9, targetSessionsPerReplica: 5}", func(s *effective.Settings) {
			s.Autoscaled, s.Replicas, s.MaxReplicas, s.TargetSessionsPerReplica = true, 3, 9, 5
		}},
		"user and group": {"pod: {securityProfile: {type: Custom, custom: {runAsUser: 5}}}", func(s *effective.Settings) {
			s.MaxReplicas, s.RunAsUser = 2, 5
		}},
	} {
		t.Run(name, func(t *testing.T) {
			want := effective.SettingsOf(&v1alpha1.BridgePolicy{})
			want.MaxReplicas = 0
			tc.want(&want)
			got := effective.SettingsOf(bridge(t, tc.spec))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
