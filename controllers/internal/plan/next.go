package plan

import (
	"time"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/desired"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
)

// Next decides. It never changes the world it is given.
func Next(w World, now time.Time) Plan {
	p := Plan{Facts: Facts{
		Fleet:  effective.NewFleet(w.Policy, w.ProxyImage),
		Paused: w.Policy.Spec.Management == v1alpha1.ManagementPaused,
	}}
	config := resolve(w)
	p.Accepted, p.Refs, p.Warnings = config.accepted, config.refs, config.warnings
	p.Reports = reports.Merge(w.Reports, now)
	r := newRollout(w, p.Fleet, now)
	r.wanted = config.date(w, r.active.pods, now)
	acts := p.Accepted.OK && !p.Paused && r.wanted.BundleHash != ""
	if acts {
		r.advance()
		p.Actions = actions(w, r, config)
	}
	p.BundleHash, p.CredentialsHash, p.Active = r.wanted.BundleHash, r.wanted.CredentialsHash, r.active.name
	p.Programmed = acknowledged(r.active.pods, r.wanted, p.Fleet, now)
	p.Rollout = r.report(p.Paused)
	p.Wait = wait(now, append(r.again, p.Programmed.Until, p.Reports.NextStale)...)
	return p
}

// actions lists everything that shall be; what is so already costs no write.
// Files exist before the pods that mount them.
func actions(w World, r *rollout, config resolved) []Action {
	list := []Action{GrantAccess{r.fleet}}
	if config.ok {
		list = append(list, WriteConfig{r.fleet, r.wanted, w.CredentialsVersion})
	}
	list = append(list, r.actions(w)...)
	if pods := unaware(w, r.wanted); len(pods) > 0 && config.ok {
		list = append(list, NotifyPods{pods, reports.ConfigHash(r.wanted.BundleHash, r.wanted.CredentialsHash)})
	}
	return list
}

// unaware lists the live pods that are not marked with the wanted configuration.
func unaware(w World, wanted desired.Documents) []PodRef {
	hash := reports.ConfigHash(wanted.BundleHash, wanted.CredentialsHash)
	var list []PodRef
	for _, r := range w.Reports {
		if r.Pod.Annotations[v1alpha1.AnnotationConfigHash] != hash {
			list = append(list, podRef(r))
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
