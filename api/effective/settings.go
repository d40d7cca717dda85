package effective

import (
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// Settings is a BridgePolicy with defaults applied, as far as the operator needs
// numbers and choices that are not in the bundle. Blocks that are handed on as
// they are (resources, labels, affinity, ...) are read from the spec.
type Settings struct {
	Management    v1alpha1.Management
	UpgradePolicy v1alpha1.UpgradePolicy

	// Replicas of the active slot. With Autoscaled it is the lower bound.
	Replicas                 int32
	Autoscaled               bool
	MaxReplicas              int32
	TargetCPUPercent         int32 // 0 = CPU does not scale
	TargetSessionsPerReplica int32 // 0 = sessions do not scale

	RunAsUser int64
	FSGroup   int64

	ServiceType   v1alpha1.ServiceType
	ServicePort   int32
	ExposePreview v1alpha1.Switch

	RolloutType     v1alpha1.RolloutType
	Promotion       v1alpha1.Promotion
	ReadySeconds    int32
	OverlapSeconds  int32
	RetainSeconds   int32
	ProgressSeconds int32
	DrainDeadline   int32 // seconds

	HoldSeconds       int32
	LeaseSeconds      int32
	RenewSeconds      int32
	RetrySeconds      int32
	ForceAfterSeconds int32

	DrainSoftSeconds   int32
	PodGraceSeconds    int32
	PreStopSeconds     int32
	EndpointLagSeconds int32

	ClientsMode   v1alpha1.ClientsMode
	StoreType     v1alpha1.StoreType
	StoreTLS      v1alpha1.Switch
	ReportingMode v1alpha1.ReportingMode
	ReportSeconds int32
}

// SettingsOf applies defaults. It does not judge: see Bridge.
func SettingsOf(b *v1alpha1.BridgePolicy) Settings {
	s := defaultSettings()
	spec := &b.Spec
	choose(&s.Management, spec.Management)
	if spec.Image != nil {
		if spec.Image.Reference != "" {
			s.UpgradePolicy = v1alpha1.UpgradePinned
		}
		choose(&s.UpgradePolicy, spec.Image.UpgradePolicy)
	}
	s.scale(spec)
	if spec.Pod != nil && spec.Pod.SecurityProfile != nil && spec.Pod.SecurityProfile.Custom != nil {
		set(&s.RunAsUser, spec.Pod.SecurityProfile.Custom.RunAsUser)
		set(&s.FSGroup, spec.Pod.SecurityProfile.Custom.FSGroup)
	}
	if v := spec.Service; v != nil {
		choose(&s.ServiceType, v.Type)
		set(&s.ServicePort, v.Port)
		choose(&s.ExposePreview, v.ExposePreview)
	}
	s.handOver(spec)
	if v := spec.Drain; v != nil {
		set(&s.DrainSoftSeconds, v.SoftSeconds)
		set(&s.PodGraceSeconds, v.PodGraceSeconds)
		set(&s.PreStopSeconds, v.PreStopSeconds)
		set(&s.EndpointLagSeconds, v.EndpointLagSeconds)
	}
	choose(&s.ClientsMode, spec.Clients.Mode)
	if v := spec.Store; v != nil {
		choose(&s.StoreType, v.Type)
		if v.Redis != nil {
			choose(&s.StoreTLS, v.Redis.TLS)
		}
	}
	if v := spec.Reporting; v != nil {
		choose(&s.ReportingMode, v.Mode)
		set(&s.ReportSeconds, v.MinIntervalSeconds)
	}
	return s
}

func (s *Settings) scale(spec *v1alpha1.BridgePolicySpec) {
	set(&s.Replicas, spec.Replicas)
	v := spec.Autoscaling
	if v == nil {
		s.MaxReplicas, s.TargetCPUPercent = s.Replicas, 0
		return
	}
	s.Autoscaled, s.MaxReplicas = true, v.MaxReplicas
	s.Replicas = min(s.Replicas, v.MaxReplicas)
	set(&s.Replicas, v.MinReplicas)
	if v.TargetSessionsPerReplica != nil {
		s.TargetSessionsPerReplica, s.TargetCPUPercent = *v.TargetSessionsPerReplica, 0
	}
	set(&s.TargetCPUPercent, v.TargetCPUPercent)
}

func (s *Settings) handOver(spec *v1alpha1.BridgePolicySpec) {
	if v := spec.Rollout; v != nil {
		choose(&s.RolloutType, v.Type)
		if bg := v.BlueGreen; bg != nil {
			choose(&s.Promotion, bg.Promotion)
			set(&s.ReadySeconds, bg.ReadySeconds)
			set(&s.OverlapSeconds, bg.OverlapSeconds)
			set(&s.RetainSeconds, bg.RetainSeconds)
			set(&s.ProgressSeconds, bg.ProgressDeadlineSeconds)
			set(&s.DrainDeadline, bg.DrainDeadlineSeconds)
		}
	}
	if v := spec.Activation; v != nil {
		set(&s.HoldSeconds, v.HoldSeconds)
		set(&s.LeaseSeconds, v.LeaseDurationSeconds)
		set(&s.RenewSeconds, v.RenewDeadlineSeconds)
		set(&s.RetrySeconds, v.RetryPeriodSeconds)
		set(&s.ForceAfterSeconds, v.ForceAfterSeconds)
	}
}

// set overwrites a default with a number that was written.
func set[T, V int | int32 | int64](into *T, written *V) {
	if written != nil {
		*into = T(*written)
	}
}

// choose overwrites a default with a choice that was written.
func choose[T, V ~string](into *T, written V) {
	if written != "" {
		*into = T(written)
	}
}

func texts[T ~string](in []T) []string {
	out := make([]string, 0, len(in))
	for _, v := range in {
		out = append(out, string(v))
	}
	return out
}
