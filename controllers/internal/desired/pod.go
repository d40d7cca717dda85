package desired

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/causeway-dev/causeway/api/bundle"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
)

// Ports of a proxy, by name.
const (
	portData = "data"
	portOps  = "ops"
	portPeer = "peer"

	dataPortNumber = 8080
	opsPortNumber  = 9090
	peerPortNumber = 8081
)

const (
	containerProxy = "proxy"
	configVolume   = "config"
	configDir      = "/etc/causeway"
	// fileMode lets the proxy's group read its files and nobody else.
	fileMode = 0o440
)

func podTemplate(s effective.Slot) *corev1ac.PodTemplateSpecApplyConfiguration {
	labels, annotations := maps.Clone(s.Pod.Labels), maps.Clone(s.Pod.Annotations)
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(labels, s.Labels()) // ours last: a selector must never miss
	labels[v1alpha1.AnnotationRevision] = s.Revision
	maps.Copy(annotations, revisionAnnotations(s))
	return corev1ac.PodTemplateSpec().
		WithLabels(labels).WithAnnotations(annotations).
		WithSpec(podSpec(s))
}

func podSpec(s effective.Slot) *corev1ac.PodSpecApplyConfiguration {
	spec := corev1ac.PodSpec().
		WithServiceAccountName(s.ServiceAccountName()).
		WithAutomountServiceAccountToken(true). // to report
		WithEnableServiceLinks(false).
		WithTerminationGracePeriodSeconds(int64(s.PodGraceSeconds)).
		WithSecurityContext(corev1ac.PodSecurityContext().
			WithRunAsNonRoot(true).WithRunAsUser(s.RunAsUser).WithRunAsGroup(s.RunAsUser).WithFSGroup(s.FSGroup).
			WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		WithContainers(container(s)).
		WithVolumes(volume(s.Fleet))
	for _, name := range s.PullSecrets {
		spec.WithImagePullSecrets(corev1ac.LocalObjectReference().WithName(name))
	}
	schedule(spec, s)
	return spec
}

// schedule takes over what the user says about nodes; without it the pods are
// spread over nodes where that is possible.
func schedule(spec *corev1ac.PodSpecApplyConfiguration, s effective.Slot) {
	if len(s.Pod.NodeSelector) > 0 {
		spec.WithNodeSelector(s.Pod.NodeSelector)
	}
	if s.Pod.PriorityClassName != "" {
		spec.WithPriorityClassName(s.Pod.PriorityClassName)
	}
	for _, t := range s.Pod.Tolerations {
		spec.WithTolerations(same[corev1ac.TolerationApplyConfiguration](t))
	}
	if s.Pod.Affinity != nil {
		spec.WithAffinity(same[corev1ac.AffinityApplyConfiguration](s.Pod.Affinity))
	}
	for _, c := range s.Pod.TopologySpreadConstraints {
		spec.WithTopologySpreadConstraints(same[corev1ac.TopologySpreadConstraintApplyConfiguration](c))
	}
	if len(s.Pod.TopologySpreadConstraints) == 0 && s.Pod.Affinity == nil {
		spec.WithTopologySpreadConstraints(corev1ac.TopologySpreadConstraint().
			WithMaxSkew(1).WithTopologyKey(corev1.LabelHostname).
			WithWhenUnsatisfiable(corev1.ScheduleAnyway).
			WithLabelSelector(metav1ac.LabelSelector().WithMatchLabels(s.Selector())))
	}
}

func container(s effective.Slot) *corev1ac.ContainerApplyConfiguration {
	c := corev1ac.Container().
		WithName(containerProxy).WithImage(s.Image).
		WithArgs("--config", configDir).
		WithEnv(environment(s)...).
		WithPorts(port(portData, dataPortNumber), port(portOps, opsPortNumber), port(portPeer, peerPortNumber)).
		WithStartupProbe(probe("/startupz", 1, 120)).
		WithReadinessProbe(probe("/readyz", 2, 2)).
		WithLivenessProbe(probe("/livez", 10, 6)).
		WithResources(corev1ac.ResourceRequirements().WithRequests(s.Resources.Requests).WithLimits(s.Resources.Limits)).
		WithVolumeMounts(corev1ac.VolumeMount().WithName(configVolume).WithMountPath(configDir).WithReadOnly(true)).
		WithTerminationMessagePolicy(corev1.TerminationMessageFallbackToLogsOnError).
		WithSecurityContext(corev1ac.SecurityContext().
			WithAllowPrivilegeEscalation(false).WithReadOnlyRootFilesystem(true).WithRunAsNonRoot(true).
			WithCapabilities(corev1ac.Capabilities().WithDrop("ALL")))
	if s.PullPolicy != "" {
		c.WithImagePullPolicy(s.PullPolicy)
	}
	if s.PreStopSeconds > 0 {
		// The endpoints of the pod vanish from all routers while it still serves.
		c.WithLifecycle(corev1ac.Lifecycle().WithPreStop(corev1ac.LifecycleHandler().
			WithSleep(corev1ac.SleepAction().WithSeconds(int64(s.PreStopSeconds)))))
	}
	return c
}

// environment says which pod a proxy is, and which Service lists the pods of its
// slot. Changes of its form count envSchema up.
func environment(s effective.Slot) []*corev1ac.EnvVarApplyConfiguration {
	list := []*corev1ac.EnvVarApplyConfiguration{
		field("POD_NAME", "metadata.name"),
		field("POD_NAMESPACE", "metadata.namespace"),
		field("POD_UID", "metadata.uid"),
		field("POD_IP", "status.podIP"),
		corev1ac.EnvVar().WithName("PEER_SERVICE").WithValue(s.ObjectName()),
	}
	if _, ok := s.Resources.Limits[corev1.ResourceMemory]; ok {
		list = append(list, corev1ac.EnvVar().WithName("GOMEMLIMIT").WithValueFrom(corev1ac.EnvVarSource().
			WithResourceFieldRef(corev1ac.ResourceFieldSelector().
				WithContainerName(containerProxy).WithResource("limits.memory").WithDivisor(resource.MustParse("1")))))
	}
	return list
}

func field(name, path string) *corev1ac.EnvVarApplyConfiguration {
	return corev1ac.EnvVar().WithName(name).WithValueFrom(corev1ac.EnvVarSource().
		WithFieldRef(corev1ac.ObjectFieldSelector().WithAPIVersion("v1").WithFieldPath(path)))
}

func port(name string, number int32) *corev1ac.ContainerPortApplyConfiguration {
	return corev1ac.ContainerPort().WithName(name).WithContainerPort(number).WithProtocol(corev1.ProtocolTCP)
}

func probe(path string, period, failures int32) *corev1ac.ProbeApplyConfiguration {
	return corev1ac.Probe().
		WithHTTPGet(corev1ac.HTTPGetAction().WithPath(path).WithPort(intstr.FromString(portOps)).WithScheme(corev1.URISchemeHTTP)).
		WithPeriodSeconds(period).WithTimeoutSeconds(2).WithFailureThreshold(failures)
}

// volume joins bundle and credentials in one folder, as the proxy expects them.
func volume(f effective.Fleet) *corev1ac.VolumeApplyConfiguration {
	return corev1ac.Volume().WithName(configVolume).WithProjected(corev1ac.ProjectedVolumeSource().
		WithDefaultMode(fileMode).
		WithSources(
			corev1ac.VolumeProjection().WithConfigMap(corev1ac.ConfigMapProjection().
				WithName(f.ConfigName()).WithItems(keyToPath(bundle.FileName))),
			corev1ac.VolumeProjection().WithSecret(corev1ac.SecretProjection().
				WithName(f.CredentialsName()).WithItems(keyToPath(bundle.CredentialsFileName))),
		))
}

func keyToPath(name string) *corev1ac.KeyToPathApplyConfiguration {
	return corev1ac.KeyToPath().WithKey(name).WithPath(name)
}

// same turns an API type into its apply configuration. Both have one JSON form,
// and every optional field of these types is omitted when empty, so that no
// zero value becomes an intent.
func same[AC any](v any) *AC {
	out := new(AC)
	if raw, err := json.Marshal(v); err == nil {
		_ = json.Unmarshal(raw, out) // the same JSON form, by construction
	}
	return out
}
