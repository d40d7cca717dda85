package effective

import (
	"regexp"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// Bounds of Kubernetes-shaped maps, in characters.
const (
	maxQualifiedName   = 317 // prefix of 253, '/', name of 63
	maxLabelValue      = 63
	maxAnnotationValue = 4096
)

var percentage = regexp.MustCompile(`^([0-9]|[1-9][0-9]|100)%$`)

func (j *judge) resources(at *field.Path, name string, list corev1.ResourceList) {
	at = at.Child(name)
	j.items(at, len(list), 3)
	known := true
	for key := range list {
		switch key {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		default:
			known = false
		}
	}
	j.rule(known, at, name+" may hold cpu, memory and ephemeral-storage: remove the others")
}

func (j *judge) pod(p *v1alpha1.Pod, at *field.Path) {
	const prefixes = " must not use the prefixes causeway.dev/ and app.kubernetes.io/: rename the key"
	const sizes = " must have keys of at most 317 and values of at most 63 characters: shorten them"
	const longSizes = " must have keys of at most 317 and values of at most 4096 characters: shorten them"

	j.items(at.Child("labels"), len(p.Labels), 16)
	j.reserved(!prefixed(p.Labels, v1alpha1.Prefix, v1alpha1.AppPrefix), at.Child("labels"), "labels"+prefixes)
	j.rule(sized(p.Labels, maxLabelValue), at.Child("labels"), "labels"+sizes)
	j.items(at.Child("annotations"), len(p.Annotations), 16)
	j.reserved(!prefixed(p.Annotations, v1alpha1.Prefix, v1alpha1.AppPrefix), at.Child("annotations"), "annotations"+prefixes)
	j.rule(sized(p.Annotations, maxAnnotationValue), at.Child("annotations"), "annotations"+longSizes)
	j.items(at.Child("nodeSelector"), len(p.NodeSelector), 16)
	j.rule(sized(p.NodeSelector, maxLabelValue), at.Child("nodeSelector"), "nodeSelector"+sizes)
	j.items(at.Child("tolerations"), len(p.Tolerations), 16)
	j.items(at.Child("topologySpreadConstraints"), len(p.TopologySpreadConstraints), 8)
	if p.PriorityClassName != "" {
		j.object(at.Child("priorityClassName"), "priorityClassName", p.PriorityClassName)
	}
	if p.ServiceAccountName != "" {
		j.object(at.Child("serviceAccountName"), "serviceAccountName", p.ServiceAccountName)
	}
	j.rule(p.ServiceAccountName == "" || len(p.ServiceAccountAnnotations) == 0, at,
		"serviceAccountAnnotations go onto our ServiceAccount: remove them or serviceAccountName")
	accounts := at.Child("serviceAccountAnnotations")
	j.items(accounts, len(p.ServiceAccountAnnotations), 8)
	j.reserved(!prefixed(p.ServiceAccountAnnotations, v1alpha1.Prefix), accounts,
		"serviceAccountAnnotations must not use the prefix causeway.dev/: rename the key")
	j.rule(sized(p.ServiceAccountAnnotations, maxAnnotationValue), accounts,
		"serviceAccountAnnotations: keys must have at most 317, values at most 4096 characters: shorten them")
	if p.SecurityProfile != nil {
		j.security(p.SecurityProfile, at.Child("securityProfile"))
	}
}

func (j *judge) security(s *v1alpha1.SecurityProfile, at *field.Path) {
	if j.required(at.Child("type"), string(s.Type)) {
		oneOf(j, at.Child("type"), s.Type, v1alpha1.SecurityRestricted, v1alpha1.SecurityCustom)
	}
	j.rule((s.Type == v1alpha1.SecurityCustom) == (s.Custom != nil), at,
		"custom must be set with type Custom and with no other: add or remove it")
	if s.Custom != nil {
		number(j, at.Child("custom", "runAsUser"), s.Custom.RunAsUser, 1, 2147483647)
		number(j, at.Child("custom", "fsGroup"), s.Custom.FSGroup, 1, 2147483647)
	}
}

func (j *judge) service(s *v1alpha1.Service, at *field.Path) {
	oneOf(j, at.Child("type"), s.Type, v1alpha1.ServiceClusterIP, v1alpha1.ServiceLoadBalancer)
	number(j, at.Child("port"), s.Port, 1, 65535)
	annotations := at.Child("annotations")
	j.items(annotations, len(s.Annotations), 32)
	j.reserved(!prefixed(s.Annotations, v1alpha1.Prefix), annotations,
		"annotations must not use the prefix causeway.dev/: rename the key")
	j.rule(sized(s.Annotations, maxAnnotationValue), annotations,
		"annotations must have keys of at most 317 and values of at most 4096 characters: shorten them")
	j.length(at.Child("loadBalancerClass"), s.LoadBalancerClass, 253)
	j.rule(s.LoadBalancerClass == "" || s.Type == v1alpha1.ServiceLoadBalancer, at,
		"loadBalancerClass needs type LoadBalancer: remove it or set the type")
	oneOf(j, at.Child("exposePreview"), s.ExposePreview, v1alpha1.SwitchEnabled, v1alpha1.SwitchDisabled)
}

func (j *judge) rollout(r *v1alpha1.Rollout, at *field.Path) {
	if j.required(at.Child("type"), string(r.Type)) {
		oneOf(j, at.Child("type"), r.Type, v1alpha1.RolloutBlueGreen, v1alpha1.RolloutRollingUpdate)
	}
	j.rule(r.Type == v1alpha1.RolloutBlueGreen || r.BlueGreen == nil, at,
		"blueGreen belongs to type BlueGreen: remove it or change the type")
	j.rule(r.Type == v1alpha1.RolloutRollingUpdate || r.RollingUpdate == nil, at,
		"rollingUpdate belongs to type RollingUpdate: remove it or change the type")
	if b := r.BlueGreen; b != nil {
		here := at.Child("blueGreen")
		oneOf(j, here.Child("promotion"), b.Promotion, v1alpha1.PromotionAutomatic, v1alpha1.PromotionManual)
		number(j, here.Child("readySeconds"), b.ReadySeconds, 0, 3600)
		number(j, here.Child("overlapSeconds"), b.OverlapSeconds, 0, 3600)
		number(j, here.Child("retainSeconds"), b.RetainSeconds, 0, 604800)
		number(j, here.Child("progressDeadlineSeconds"), b.ProgressDeadlineSeconds, 30, 86400)
		number(j, here.Child("drainDeadlineSeconds"), b.DrainDeadlineSeconds, 60, 604800)
	}
	if u := r.RollingUpdate; u != nil {
		j.share(at.Child("rollingUpdate"), "maxSurge", u.MaxSurge)
		j.share(at.Child("rollingUpdate"), "maxUnavailable", u.MaxUnavailable)
	}
}

func (j *judge) share(at *field.Path, name string, v *intstr.IntOrString) {
	if v == nil {
		return
	}
	ok := v.IntVal >= 0 && v.IntVal <= 1000
	if v.Type == intstr.String {
		ok = percentage.MatchString(v.StrVal)
	}
	j.rule(ok, at.Child(name), name+" must be a number from 0 to 1000 or a percentage from 0% to 100%")
}

func (j *judge) activation(a *v1alpha1.Activation, at *field.Path) {
	number(j, at.Child("holdSeconds"), a.HoldSeconds, 0, 600)
	number(j, at.Child("leaseDurationSeconds"), a.LeaseDurationSeconds, 5, 600)
	number(j, at.Child("renewDeadlineSeconds"), a.RenewDeadlineSeconds, 3, 400)
	number(j, at.Child("retryPeriodSeconds"), a.RetryPeriodSeconds, 1, 120)
	number(j, at.Child("forceAfterSeconds"), a.ForceAfterSeconds, 10, 3600)
	renew, lease, retry := a.RenewDeadlineSeconds, a.LeaseDurationSeconds, a.RetryPeriodSeconds
	j.rule(renew == nil || lease == nil || *renew*3 <= *lease*2, at,
		"renewDeadlineSeconds must be at most 2/3 of leaseDurationSeconds: lower it or raise leaseDurationSeconds")
	j.rule(retry == nil || renew == nil || *retry*3 <= *renew, at,
		"retryPeriodSeconds must be at most 1/3 of renewDeadlineSeconds: lower it or raise renewDeadlineSeconds")
}

func prefixed(m map[string]string, prefixes ...string) bool {
	for key := range m {
		for _, p := range prefixes {
			if strings.HasPrefix(key, p) {
				return true
			}
		}
	}
	return false
}

func sized(m map[string]string, most int) bool {
	for key, value := range m {
		if utf8.RuneCountInString(key) > maxQualifiedName || utf8.RuneCountInString(value) > most {
			return false
		}
	}
	return true
}
