package effective

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/causeway-dev/causeway/api/v1alpha1"
)

var (
	bridgeName = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
	hostPort   = regexp.MustCompile(`^[^ /@]+:[0-9]{1,5}$`)
)

func (j *judge) bridge(b *v1alpha1.BridgePolicy) {
	j.rule(len(b.Name) <= 40 && bridgeName.MatchString(b.Name), field.NewPath("metadata", "name"),
		"metadata.name must be at most 40 of a-z, 0-9 and '-', start with a letter, not end with '-'")

	s, at := &b.Spec, field.NewPath("spec")
	j.reference(at.Child("accountPoolRef"), s.AccountPoolRef)
	if s.CircuitPolicyRef != nil {
		j.reference(at.Child("circuitPolicyRef"), *s.CircuitPolicyRef)
	}
	oneOf(j, at.Child("management"), s.Management, v1alpha1.ManagementActive, v1alpha1.ManagementPaused)
	if s.Image != nil {
		j.image(s.Image, at.Child("image"))
	}
	j.scale(s, at)
	if s.Resources != nil {
		j.resources(at.Child("resources"), "requests", s.Resources.Requests)
		j.resources(at.Child("resources"), "limits", s.Resources.Limits)
	}
	if s.Pod != nil {
		j.pod(s.Pod, at.Child("pod"))
	}
	if s.Service != nil {
		j.service(s.Service, at.Child("service"))
	}
	if s.Store != nil {
		j.store(s.Store, at.Child("store"))
	}
	j.clients(&s.Clients, at.Child("clients"))
	if s.Rollout != nil {
		j.rollout(s.Rollout, at.Child("rollout"))
	}
	if s.Activation != nil {
		j.activation(s.Activation, at.Child("activation"))
	}
	if d := s.Drain; d != nil {
		here := at.Child("drain")
		number(j, here.Child("softSeconds"), d.SoftSeconds, 0, 86400)
		number(j, here.Child("podGraceSeconds"), d.PodGraceSeconds, 40, 86400)
		number(j, here.Child("preStopSeconds"), d.PreStopSeconds, 0, 600)
		number(j, here.Child("endpointLagSeconds"), d.EndpointLagSeconds, 0, 600)
	}
	if r := s.Reporting; r != nil {
		here := at.Child("reporting")
		oneOf(j, here.Child("mode"), r.Mode, v1alpha1.ReportingObjects, v1alpha1.ReportingMetrics)
		number(j, here.Child("minIntervalSeconds"), r.MinIntervalSeconds, 5, 600)
	}
}

func (j *judge) image(i *v1alpha1.Image, at *field.Path) {
	j.length(at.Child("reference"), i.Reference, 512)
	j.rule(!strings.Contains(i.Reference, " "), at.Child("reference"),
		"reference must not contain spaces: write REGISTRY/NAME:TAG or REGISTRY/NAME@DIGEST")
	oneOf(j, at.Child("pullPolicy"), i.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	secrets := at.Child("pullSecrets")
	j.items(secrets, len(i.PullSecrets), 8)
	names := make([]string, 0, len(i.PullSecrets))
	for n, s := range i.PullSecrets {
		j.reference(secrets.Index(n), s)
		names = append(names, s.Name)
	}
	distinct(j, secrets, names)
	oneOf(j, at.Child("upgradePolicy"), i.UpgradePolicy, v1alpha1.UpgradePinned, v1alpha1.UpgradeFollowOperator)
	j.rule(i.UpgradePolicy != v1alpha1.UpgradePinned || i.Reference != "", at,
		"reference must be set with upgradePolicy Pinned: add it or use FollowOperator")
}

func (j *judge) scale(s *v1alpha1.BridgePolicySpec, at *field.Path) {
	j.rule(s.Replicas == nil || s.Autoscaling == nil, at, "replicas and autoscaling exclude each other: remove one of them")
	number(j, at.Child("replicas"), s.Replicas, 0, 1000)
	a := s.Autoscaling
	if a == nil {
		return
	}
	here := at.Child("autoscaling")
	number(j, here.Child("minReplicas"), a.MinReplicas, 1, 1000)
	number(j, here.Child("maxReplicas"), &a.MaxReplicas, 1, 1000)
	number(j, here.Child("targetCPUPercent"), a.TargetCPUPercent, 1, 100)
	number(j, here.Child("targetSessionsPerReplica"), a.TargetSessionsPerReplica, 1, 100000)
	j.rule(a.MinReplicas == nil || *a.MinReplicas <= a.MaxReplicas, here,
		"minReplicas must be at most maxReplicas: lower it or raise maxReplicas")
}

func (j *judge) store(s *v1alpha1.Store, at *field.Path) {
	if j.required(at.Child("type"), string(s.Type)) {
		oneOf(j, at.Child("type"), s.Type, v1alpha1.StoreMemory, v1alpha1.StoreRedis)
	}
	j.rule((s.Type == v1alpha1.StoreRedis) == (s.Redis != nil), at,
		"redis must be set with type Redis and with no other: add or remove it")
	if s.Redis == nil {
		return
	}
	here := at.Child("redis")
	addresses := here.Child("addresses")
	if len(s.Redis.Addresses) == 0 {
		j.errs = append(j.errs, field.Required(addresses, ""))
	}
	j.items(addresses, len(s.Redis.Addresses), 16)
	formed := true
	for i, a := range s.Redis.Addresses {
		if j.required(addresses.Index(i), a) {
			j.length(addresses.Index(i), a, 259)
		}
		formed = formed && hostPort.MatchString(a)
	}
	j.rule(formed, addresses, "addresses must be HOST:PORT: remove scheme, path and credentials")
	distinct(j, addresses, s.Redis.Addresses)
	if s.Redis.AuthSecretRef != nil {
		j.keyReference(here.Child("authSecretRef"), *s.Redis.AuthSecretRef)
	}
	oneOf(j, here.Child("tls"), s.Redis.TLS, v1alpha1.SwitchEnabled, v1alpha1.SwitchDisabled)
}

func (j *judge) clients(c *v1alpha1.Clients, at *field.Path) {
	oneOf(j, at.Child("mode"), c.Mode, v1alpha1.ClientsRequired, v1alpha1.ClientsOpen)
	j.rule(c.KeysSecretRef != nil || c.Mode == v1alpha1.ClientsOpen, at,
		"keysSecretRef must be set unless mode is Open: name a Secret with one key per client")
	if c.KeysSecretRef != nil {
		j.reference(at.Child("keysSecretRef"), *c.KeysSecretRef)
	}
}
