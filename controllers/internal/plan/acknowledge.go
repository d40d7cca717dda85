package plan

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/desired"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
)

// referenceGrace is how long a change that did not come from the policy itself
// may be on its way before Programmed says so: a kubelet that missed the mark on
// the pod syncs within a minute.
const referenceGrace = 60 * time.Second

// Acknowledgement is what condition Programmed says.
type Acknowledgement struct {
	Status          metav1.ConditionStatus
	Reason, Message string
	// Until is when the answer changes by time alone; zero = never.
	Until time.Time
}

// acknowledged judges the answers of the ready proxies of a slot. A proxy that
// has never reported is not held against the others: a silent reporting channel
// must not take a bridge down that serves.
func acknowledged(list []reports.Report, wanted desired.Documents, f effective.Fleet, now time.Time) Acknowledgement {
	n := count(list, wanted)
	switch {
	case wanted.BundleHash == "":
		return unknown("There is no configuration yet.")
	case n.refused != nil:
		return rejected(n.refused)
	case n.behind > 0:
		return pending(wanted, now)
	case n.current > 0:
		return current()
	case f.Replicas == 0 && !f.Autoscaled:
		return current()
	case n.silent > 0:
		return unknown("No proxy has reported yet.")
	default:
		return unknown("No proxy is ready to acknowledge the configuration.")
	}
}

type answers struct {
	current, behind, silent int
	refused                 *v1alpha1.ObservedConfig
}

func count(list []reports.Report, wanted desired.Documents) (n answers) {
	for _, r := range list {
		if !r.Ready() {
			continue
		}
		var seen *v1alpha1.ObservedConfig
		if r.Replica != nil {
			seen = r.Replica.Status.ObservedConfig
		}
		switch {
		case seen == nil:
			n.silent++
		case reports.Acknowledged(seen, wanted.BundleHash, wanted.CredentialsHash):
			n.current++
		case reports.Refused(seen, wanted.BundleHash, wanted.CredentialsHash):
			n.refused = seen
		default:
			n.behind++
		}
	}
	return n
}

func current() Acknowledgement {
	return Acknowledgement{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConfigAcknowledged,
		Message: "All reporting proxies serve the wanted configuration."}
}

func unknown(message string) Acknowledgement {
	return Acknowledgement{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNoReports, Message: message}
}

// pending is False at once for what the user asked of this very object, so that
// waiting for Ready after an apply is right; anything else has its grace.
func pending(wanted desired.Documents, now time.Time) Acknowledgement {
	since, err := time.Parse(time.RFC3339, wanted.ChangedAt)
	until := since.Add(referenceGrace)
	if wanted.Cause == desired.CauseReference && err == nil && now.Before(until) {
		a := current()
		a.Until = until
		return a
	}
	return Acknowledgement{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonConfigPending,
		Message: "Some proxies do not serve the wanted configuration yet."}
}

func rejected(seen *v1alpha1.ObservedConfig) Acknowledgement {
	a := Acknowledgement{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonConfigRejected,
		Message: "Some proxies refuse the wanted configuration and keep the one before; their logs say why."}
	if seen.Reason == v1alpha1.ReasonVersionSkew {
		a.Reason = v1alpha1.ReasonVersionSkew
		a.Message = "Some proxies are of a version that does not know this form of configuration; they keep the one before."
	}
	return a
}
