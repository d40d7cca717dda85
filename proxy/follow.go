package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/causeway-dev/causeway/api/version"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/report"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

// reportingMetrics is the mode of reporting in which numbers come from metrics.
const reportingMetrics = "Metrics"

// follow takes over each valid change of the configuration. Watch logs them.
func (p *process) follow(ctx context.Context) {
	if err := config.Watch(ctx, p.options.ConfigDir, p.log, p.apply, p.reject); err != nil {
		p.log.Error("Following the configuration failed; it stays as it is", "error", err)
	}
}

func (p *process) apply(rt *config.Runtime) {
	p.rejected.Store(nil)
	if p.runtime.Load().Hash == rt.Hash {
		p.runtime.Store(rt) // the generation may differ
		p.changed()
		return
	}
	p.accounts.Update(rt)
	p.routes.Update(rt.Bundle.Circuit.Breaker, len(rt.Bundle.Pool.Accounts))
	if p.store != nil {
		p.store.SetPassword(rt.Credentials.StorePassword)
	}
	p.runtime.Store(rt)
	p.resetCircuits(rt)
	p.forceCircuits(rt)
	p.metrics.ConfigReloaded(telemetry.ResultOK)
	p.changed()
}

func (p *process) reject(err error) {
	rejected := &config.Rejected{Reason: config.ReasonInvalid}
	errors.As(err, &rejected)
	p.rejected.Store(rejected)
	p.metrics.ConfigReloaded(telemetry.ResultRejected)
	p.changed()
}

// startReport keeps the pod's BridgeReplica up to date, if this is a pod. What
// fails there must not keep a proxy from serving.
func (p *process) startReport(ctx context.Context, tasks *sync.WaitGroup) {
	pod, cluster, ok := report.InCluster(p.options.Getenv)
	if !ok {
		return
	}
	sink, err := report.NewAPISink(cluster, pod)
	if err != nil {
		p.log.Error("Reporting is off", "error", err)
		return
	}
	reporter := report.New(report.Options{Sink: sink, Source: p.snapshot, Logger: p.log, Written: func(err error) {
		if err != nil {
			p.metrics.ReportWritten(telemetry.ResultError)
			return
		}
		p.metrics.ReportWritten(telemetry.ResultOK)
	}})
	p.changed = reporter.Changed
	tasks.Go(func() { reporter.Run(ctx) })
}

func (p *process) snapshot() report.Snapshot {
	rt := p.runtime.Load()
	recent := p.metrics.Recent()
	s := report.Snapshot{
		Config:         report.Config{Generation: rt.Bundle.Generation, Hash: rt.Bundle.Hash, CredentialsHash: rt.Credentials.Hash},
		Version:        version.Version,
		Sessions:       reported(p.bridge.Overview(), p.peers.live()),
		Turns:          report.Turns(recent),
		Accounts:       reportedAccounts(p.accounts.States()),
		Lanes:          reportedLanes(p.accounts.Lanes()),
		Routes:         reportedRoutes(p.routes.States()),
		MinInterval:    time.Duration(rt.Bundle.Reporting.MinIntervalSeconds) * time.Second,
		NumbersOmitted: rt.Bundle.Reporting.Mode == reportingMetrics,
	}
	if r := p.rejected.Load(); r != nil {
		s.Config = report.Config{Generation: r.Generation, Hash: r.Hash, CredentialsHash: r.CredentialsHash, Rejected: r.Reason}
	}
	s.Role = roleOf(p.server.Draining(), p.authority().Mode, s.Sessions.Active+s.Sessions.Draining)
	if p.gate != nil {
		s.Epoch = p.gate.Epoch()
	}
	return s
}
