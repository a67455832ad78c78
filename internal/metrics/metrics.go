// Package metrics names everything that orderd counts.
package metrics

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the service's own counters; New registers them.
type Metrics struct {
	Duplicates       *prometheus.CounterVec // by guard
	VersionConflicts prometheus.Counter
	LockAnswers      *prometheus.CounterVec // by answer: held, busy, down
	LocksLost        prometheus.Counter
	TxRetries        *prometheus.CounterVec // by op, class
	GatewayCalls     *prometheus.CounterVec // by gateway, call, outcome
	Callbacks        *prometheus.CounterVec // by gateway, result
	Events           *prometheus.CounterVec // of the outbox, by result: published, failed
	Commands         *prometheus.CounterVec // by type, result
	Alerts           *prometheus.CounterVec // by kind: what a person should look at
	HTTPDuration     *prometheus.HistogramVec
	BatchSize        *prometheus.HistogramVec // by use case
}

// New makes the metrics and registers them with reg.
func New(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		reg.MustRegister(h)
		return h
	}
	return &Metrics{
		Duplicates:       counter("orderd_duplicates_stopped_total", "Repeats recognised, by the guard that saw them first.", "guard"),
		VersionConflicts: counter("orderd_version_conflicts_total", "Stock updates that met another version and ran again.").WithLabelValues(),
		LockAnswers:      counter("orderd_lock_answers_total", "Answers of the order lock: held, busy, down (went on without it).", "answer"),
		LocksLost:        counter("orderd_locks_lost_total", "Locks that were no longer ours when released: the section may have run unprotected.").WithLabelValues(),
		TxRetries:        counter("orderd_tx_retries_total", "Transactions run again, by operation and class of the error.", "op", "class"),
		GatewayCalls:     counter("orderd_gateway_calls_total", "Calls to a payment gateway, by their outcome.", "gateway", "call", "outcome"),
		Callbacks:        counter("orderd_callbacks_total", "Callbacks received, by their result or error code.", "gateway", "result"),
		Events:           counter("orderd_events_total", "Events of the outbox, by what became of the attempt to publish them: published, failed.", "result"),
		Commands:         counter("orderd_commands_total", "Commands from the queue, by type and result: done, refused, repeated, put_off, parked.", "type", "result"),
		Alerts:           counter("orderd_alerts_total", "Events that a person should look at.", "kind"),
		HTTPDuration:     histogram("orderd_http_request_seconds", "Duration of HTTP requests.", prometheus.ExponentialBuckets(0.001, 2, 14), "method", "route", "status"),
		BatchSize:        histogram("orderd_batch_size", "Items per group commit or grouped read.", prometheus.ExponentialBuckets(1, 2, 8), "use_case"),
	}
}
