package credential

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var exchanges = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "causeway_operator_login_exchanges_total",
	Help: "Requests to issuers by what became of them: Granted, Denied (a human has to log in), Refused (the request as such), " +
		"Unreachable (nothing was sent) or Unknown (the reply got lost).",
}, []string{"outcome"})

func init() { metrics.Registry.MustRegister(exchanges) }
