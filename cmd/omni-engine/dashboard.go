package main

import (
	"net/http"

	"omni-engine/cmd/omni-engine/build"
	"omni-engine/internal/config"
	"omni-engine/internal/server/dashboard"
	"omni-engine/metrics/record"
)

// startDashboard makes the page, before the core whose records it takes.
func (a *app) startDashboard(cfg *config.Serve, names []string) {
	if cfg.DisableDashboard {
		return
	}
	a.page = dashboard.New(dashboard.Options{Models: names, Version: build.Read().Version, Recording: cfg.Recording(), Health: func() error {
		if a.pipeline == nil { // not started yet
			return nil
		}
		return a.pipeline.Health()
	}})
}

// look is the page's view of one engine core; nil: there is no page.
type look struct{ *dashboard.Replica }

func (a *app) lookAt(t record.StageType) look {
	if a.page == nil {
		return look{}
	}
	return look{a.page.Replica(dashboard.ReplicaInfo{Type: t})}
}

func (l look) sink(next record.Sink) record.Sink {
	if l.Replica == nil {
		return next
	}
	return l.Sink(next)
}

func (l look) observe(snapshot func() record.Snapshot) {
	if l.Replica != nil {
		l.Observe(snapshot)
	}
}

// pages are the routes beside the API's.
func (a *app) pages() map[string]http.Handler {
	if a.page == nil {
		return nil
	}
	return a.page.Routes()
}
