package plan

import (
	"time"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
)

// candidateReady says whether the candidate can take over what the active slot
// has, and since when: every pod is there, of the right revision, ready, and
// serves the wanted configuration. A proxy that cannot report could not take the
// Lease either. One that has served before need only have its pods ready.
func (r *rollout) candidateReady() (since time.Time, ok bool) {
	o := r.other
	size := o.replicas
	if !o.served() {
		size = r.candidateSize()
	}
	var ready int32
	for _, p := range o.pods {
		if !p.Ready() || p.Pod.Labels[v1alpha1.AnnotationRevision] != o.revision || !o.served() && !r.acknowledged(p) {
			continue
		}
		ready++
		if at := p.ReadySince(); at.After(since) {
			since = at
		}
	}
	return since, ready > 0 && ready >= size && o.replicas >= size
}

func (r *rollout) acknowledged(p reports.Report) bool {
	return p.Replica != nil &&
		reports.Acknowledged(p.Replica.Status.ObservedConfig, r.wanted.BundleHash, r.wanted.CredentialsHash)
}

// candidateSize is the size of the active slot as it is now, which an autoscaler
// may have chosen.
func (r *rollout) candidateSize() int32 {
	if a := r.active; a.exists && a.replicas > 0 {
		return a.replicas
	}
	return r.fleet.Replicas
}
