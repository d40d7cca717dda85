package apply

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Values of the label result.
const (
	resultApplied = "applied"
	resultSkipped = "skipped"
	resultFailed  = "failed"
)

var writes = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "causeway_operator_apply_total",
	Help: "Intents for child objects by kind and by what became of them: applied, skipped (already met) or failed.",
}, []string{"kind", "result"})

func init() { metrics.Registry.MustRegister(writes) }
