package plan

import (
	"time"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/desired"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
)

// activeSlot is the slot that serves. The other one exists by name only until
// slots take turns.
const activeSlot = v1alpha1.SlotBlue

// Next decides. It never changes the world it is given.
func Next(w World, now time.Time) Plan {
	p := Plan{Facts: Facts{
		Fleet:  effective.NewFleet(w.Policy, w.ProxyImage),
		Active: activeSlot,
		Paused: w.Policy.Spec.Management == v1alpha1.ManagementPaused,
	}}
	config := resolve(w)
	p.Accepted, p.Refs, p.Warnings = config.accepted, config.refs, config.warnings
	wanted := config.date(w, now)
	p.BundleHash, p.CredentialsHash = wanted.BundleHash, wanted.CredentialsHash
	p.Reports = reports.Merge(w.Reports, now)
	p.Programmed = acknowledged(slotReports(w, activeSlot), wanted, p.Fleet, now)
	if p.Accepted.OK && !p.Paused && wanted.BundleHash != "" {
		p.Actions = actions(w, p.Fleet, config, wanted)
	}
	p.Wait = wait(now, p.Programmed.Until, p.Reports.NextStale)
	return p
}

// actions lists everything that shall be; what is so already costs no write.
// The order makes each step safe to be the last: files exist before the pods
// that mount them, pods before the route to them.
func actions(w World, f effective.Fleet, config resolved, wanted desired.Documents) []Action {
	slot := effective.Slot{Fleet: f, Slot: activeSlot}
	list := []Action{GrantAccess{f}}
	if config.ok {
		list = append(list, WriteConfig{f, wanted})
	}
	list = append(list, ApplySlot{slot})
	if !f.Autoscaled || w.Deployment == nil {
		list = append(list, ScaleSlot{slot, f.Replicas})
	}
	list = append(list, SwitchRoute{slot})
	if pods := unaware(w, wanted); len(pods) > 0 && config.ok {
		list = append(list, NotifyPods{pods, reports.ConfigHash(wanted.BundleHash, wanted.CredentialsHash)})
	}
	return list
}

// unaware lists the live pods that are not marked with the wanted configuration.
func unaware(w World, wanted desired.Documents) []PodRef {
	hash := reports.ConfigHash(wanted.BundleHash, wanted.CredentialsHash)
	var list []PodRef
	for _, r := range w.Reports {
		if r.Pod.Annotations[v1alpha1.AnnotationConfigHash] != hash {
			ref := PodRef{UID: r.Pod.UID}
			ref.Namespace, ref.Name = r.Pod.Namespace, r.Pod.Name
			list = append(list, ref)
		}
	}
	return list
}

func slotReports(w World, slot v1alpha1.SlotName) []reports.Report {
	var list []reports.Report
	for _, r := range w.Reports {
		if r.Slot() == slot {
			list = append(list, r)
		}
	}
	return list
}

// wait is the time to the earliest of the given moments; zero times do not count.
func wait(now time.Time, moments ...time.Time) time.Duration {
	var least time.Duration
	for _, at := range moments {
		if at.IsZero() {
			continue
		}
		// Never 0, which would mean "not needed", and never a spin.
		if d := max(at.Sub(now), time.Second); least == 0 || d < least {
			least = d
		}
	}
	return least
}
