"""Prometheus metrics of one sidecar and the engine it plans for, on a registry of their own."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from nightjar_api.engine.v1.engine_pb2 import DRAFT_RESIDENCY_ON_DEVICE, ElasticProgress, Plan, StepReport
from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.protocol import Decision
from nightjar_sidecar.regret import Lost
from nightjar_sidecar.space import Bucket
from nightjar_sidecar.telemetry import Switch

_ROUND_SECONDS = (0.001, 0.002, 0.004, 0.006, 0.008, 0.012, 0.016, 0.024, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0)
_OVERHEAD_SECONDS = (5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3)


class AtScrape(Collector):
    """A gauge that is read when it is asked for, and has no sample while there is nothing to read."""

    def __init__(self, name: str, documentation: str, read: Callable[[], float | None]) -> None:
        self._name = name
        self._documentation = documentation
        self._read = read

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return [GaugeMetricFamily(self._name, self._documentation)]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        yield GaugeMetricFamily(self._name, self._documentation, self._read())


def _nothing() -> None:
    return None


class Metrics:
    """Labels are bounded: lengths and positions by the engine's longest length, buckets by the settings.

    `plan_age` gives the seconds since the engine took its latest plan; None while there is none.
    """

    def __init__(self, plan_age: Callable[[], float | None] = _nothing) -> None:
        self.registry = CollectorRegistry()
        self._plan_age = plan_age
        self._engine_metrics()
        self._speculation_metrics()
        self._planner_metrics()
        self._memory_metrics()

    def _engine_metrics(self) -> None:
        registry = self.registry
        self.connected = Gauge("nightjar_engine_connected", "1 while the engine is connected.", registry=registry)
        self.connections = Counter("nightjar_engine_connections", "Connections made to the engine.", registry=registry)
        self.reports = Counter("nightjar_step_reports", "Step reports received.", registry=registry)
        self.dropped = Counter(
            "nightjar_step_reports_dropped",
            "Step reports lost because the sidecar was slow.",
            registry=registry,
        )
        self.emitted = Counter("nightjar_emitted_tokens", "Tokens given to requests.", registry=registry)
        self.running = Gauge("nightjar_requests_running", "Requests running.", registry=registry)
        self.waiting = Gauge("nightjar_requests_waiting", "Requests waiting.", registry=registry)
        self.free_blocks = Gauge("nightjar_kv_blocks_free", "Free KV blocks.", registry=registry)
        self.total_blocks = Gauge("nightjar_kv_blocks", "KV blocks.", registry=registry)
        self.draft_on_device = Gauge("nightjar_draft_on_device", "1 while the draft has its memory.", registry=registry)
        self.overhead = Histogram(
            "nightjar_step_overhead_seconds",
            "Time Nightjar's own code took in an engine step.",
            buckets=_OVERHEAD_SECONDS,
            registry=registry,
        )

    def _speculation_metrics(self) -> None:
        registry = self.registry
        self.gamma = Gauge("nightjar_gamma", "Speculative length of the latest step.", registry=registry)
        self.rounds = Histogram(
            "nightjar_round_seconds",
            "Drafting plus verification of a round without prompt tokens, by speculative length.",
            ["gamma"],
            buckets=_ROUND_SECONDS,
            registry=registry,
        )
        self.verified = Counter(
            "nightjar_draft_tokens_verified", "Draft tokens verified.", ["position"], registry=registry
        )
        self.accepted = Counter(
            "nightjar_draft_tokens_accepted", "Draft tokens accepted.", ["position"], registry=registry
        )
        self.switches = Counter(
            "nightjar_gamma_switches",
            "Changes of the speculative length: on and off from and to 0, length between others.",
            ["kind"],
            registry=registry,
        )
        self.catch_up_tokens = Counter("nightjar_catch_up_tokens", "Stale draft tokens caught up.", registry=registry)
        self.catch_up_seconds = Counter(
            "nightjar_catch_up_seconds", "Time spent catching the draft up.", registry=registry
        )
        self.stale_tokens = Gauge(
            "nightjar_stale_tokens", "Tokens whose draft KV is stale, over all running requests.", registry=registry
        )

    def _planner_metrics(self) -> None:
        registry = self.registry
        self.switch_cost = Gauge(
            "nightjar_switch_cost_seconds", "What a return from no speculation would cost now.", registry=registry
        )
        self.switch_cost_per_token = Gauge(
            "nightjar_switch_cost_seconds_per_token", "Measured catch-up time per stale token.", registry=registry
        )
        self.planned_gamma = Gauge(
            "nightjar_planned_gamma",
            "Speculative length held for decode batches up to max_batch.",
            ["max_batch"],
            registry=registry,
        )
        self.plan_version = Gauge("nightjar_plan_version", "Version of the latest plan.", registry=registry)
        self.registry.register(
            AtScrape("nightjar_plan_age_seconds", "Time since the engine took its latest plan.", self._plan_age)
        )
        self.plan_ttl = Gauge(
            "nightjar_plan_ttl_seconds", "Time that the latest plan lives for without a renewal.", registry=registry
        )
        self.plans = Counter("nightjar_plans_applied", "Plans that the engine took.", registry=registry)
        self.regret = Counter(
            "nightjar_regret_estimate_seconds",
            "Time by which the length with the least predicted time would have given the same tokens sooner.",
            ["policy"],
            registry=registry,
        )
        self.predicted = Counter(
            "nightjar_predicted_round_seconds",
            "Time that those tokens take at the length that was used, as the policy predicts.",
            ["policy"],
            registry=registry,
        )
        self.settings_errors = Counter(
            "nightjar_settings_errors",
            "Settings that were refused; those in force stayed.",
            registry=registry,
        )

    def _memory_metrics(self) -> None:
        registry = self.registry
        self.memory_changes = Histogram(
            "nightjar_memory_change_seconds",
            "Time in which the draft's memory changed hands, by what was done: expand or squeeze.",
            ["change"],
            buckets=_ROUND_SECONDS,
            registry=registry,
        )
        self.memory_refusals = Counter(
            "nightjar_memory_changes_refused",
            "Changes that the engine refused, to be tried again.",
            ["change"],
            registry=registry,
        )
        self.moved_blocks = Counter(
            "nightjar_kv_blocks_moved", "KV blocks that held something and that a squeeze moved.", registry=registry
        )
        self.elastic_seconds = Counter(
            "nightjar_memory_step_seconds", "Time steps waited for memory to change hands.", registry=registry
        )

    def observe_memory(self, change: str, progress: ElasticProgress) -> None:
        self.memory_changes.labels(change).observe(progress.elapsed_ns * 1e-9)
        self.moved_blocks.inc(progress.moved_blocks)

    def observe_report(self, report: StepReport, switch: Switch | None) -> None:
        self.reports.inc()
        self.emitted.inc(report.emitted_tokens)
        self.gamma.set(report.gamma_drafted)
        if switch is not None:
            self.switches.labels(switch).inc()
        for position, (verified, accepted) in enumerate(
            zip(report.verified_by_position, report.accepted_by_position, strict=False)
        ):
            self.verified.labels(position).inc(verified)
            self.accepted.labels(position).inc(accepted)
        self.catch_up_tokens.inc(report.catch_up_tokens)
        self.catch_up_seconds.inc(report.catch_up_ns * 1e-9)
        self.overhead.observe(report.overhead_ns * 1e-9)
        self.elastic_seconds.inc(report.elastic_ns * 1e-9)

    def observe_state(self, report: StepReport) -> None:
        """The latest report of a batch: values that only matter now."""
        self.running.set(report.running)
        self.waiting.set(report.waiting)
        self.free_blocks.set(report.free_blocks)
        self.total_blocks.set(report.total_blocks)
        self.stale_tokens.set(report.stale_tokens)
        self.draft_on_device.set(report.draft_residency == DRAFT_RESIDENCY_ON_DEVICE)

    def observe_round(self, round_: Round) -> None:
        if round_.typical:
            self.rounds.labels(round_.gamma).observe(round_.seconds)

    def observe_regret(self, policy: str, lost: Lost) -> None:
        self.regret.labels(policy).inc(lost.seconds)
        self.predicted.labels(policy).inc(lost.predicted)

    def observe_plan(self, plan: Plan, planned: Mapping[Bucket, Decision]) -> None:
        self.plans.inc()
        self.plan_version.set(plan.version)
        self.plan_ttl.set(plan.ttl_ms * 1e-3)
        self.planned_gamma.clear()
        for bucket, decision in planned.items():
            self.planned_gamma.labels(bucket.high).set(decision.hold)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)
