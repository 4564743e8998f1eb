"""Prometheus metrics of the operator, on a registry of their own."""

from collections import Counter as Counts
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from nightjar_operator.kinds import Kind
from nightjar_operator.store import Seen

_RECONCILE_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_RESYNC_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """No label holds the name of a service: their number is not bounded."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.reconciles = Histogram(
            "nightjar_operator_reconcile_seconds",
            "Time to bring one service to where its spec says, requests included.",
            ["result"],
            buckets=_RECONCILE_SECONDS,
            registry=registry,
        )
        self.queue = Gauge("nightjar_operator_queue_depth", "Services that wait to be reconciled.", registry=registry)
        self.failing = Gauge(
            "nightjar_operator_failing_services", "Services whose latest reconcile failed.", registry=registry
        )
        self.writes = Counter(
            "nightjar_operator_writes",
            "Requests that may change something in the cluster.",
            ["verb", "kind"],
            registry=registry,
        )
        self.polls = Counter("nightjar_operator_sidecar_polls", "Questions to sidecars.", ["result"], registry=registry)
        self.resyncs = Histogram(
            "nightjar_operator_resync_seconds",
            "Time to list everything and look at every service.",
            buckets=_RESYNC_SECONDS,
            registry=registry,
        )
        self.resync_failures = Counter(
            "nightjar_operator_resync_failures", "Resyncs that the API server did not let finish.", registry=registry
        )
        self.watch_restarts = Counter(
            "nightjar_operator_watch_restarts", "Times that watching ended and began again.", registry=registry
        )
        self.leader = Gauge("nightjar_operator_leader", "1 while this operator works.", registry=registry)
        self.services = Gauge("nightjar_operator_services", "NightjarServices.", registry=registry)
        self.conditions = Gauge(
            "nightjar_operator_services_by_condition",
            "NightjarServices by condition, its status and its reason.",
            ["type", "status", "reason"],
            registry=registry,
        )

    def observe_write(self, verb: str, kind: Kind) -> None:
        self.writes.labels(verb, kind.name).inc()

    def observe_services(self, found: Iterable[Seen]) -> None:
        counts: Counts[tuple[str, str, str]] = Counts()
        services = [seen.service for seen in found if seen.service is not None]
        for service in services:
            for condition in service.get("status", {}).get("conditions", []):
                counts[condition["type"], condition["status"], condition["reason"]] += 1
        self.services.set(len(services))
        self.conditions.clear()
        for labels, count in counts.items():
            self.conditions.labels(*labels).set(count)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)
