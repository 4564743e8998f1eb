"""The sidecar's state: what the engine said, what the settings ask for, what is to be sent.

No input or output here; `loop` feeds it and sends what it asks for.
"""

import logging
from collections.abc import Callable
from random import Random

from nightjar_api import durations
from nightjar_api.engine.v1.engine_pb2 import ElasticProgress, EngineInfo, Plan, StepBatch, StepReport
from nightjar_api.errors import ConfigurationError
from nightjar_api.service import PlannerSpec
from nightjar_api.settings import SidecarSettings
from nightjar_sidecar.arms import Arms
from nightjar_sidecar.attribution import Attribution, Round
from nightjar_sidecar.events import Events
from nightjar_sidecar.memory import Change, MemoryPolicy
from nightjar_sidecar.metrics import Metrics
from nightjar_sidecar.planner import Planner, check
from nightjar_sidecar.regret import Regret
from nightjar_sidecar.switch_cost import SwitchCost
from nightjar_sidecar.telemetry import Telemetry, changes, switched

_LOG = logging.getLogger(__name__)


class Controller:
    """`clock` counts seconds; `rng` is for policies that draw."""

    def __init__(self, settings: SidecarSettings, clock: Callable[[], float], rng: Random) -> None:
        self.settings = settings
        self.settings_error: str | None = None
        self.info: EngineInfo | None = None
        self.connected = False
        self.engine_error: str | None = None
        self.planner: Planner | None = None
        self.applied_version: int | None = None
        self.applied_at = 0.0
        self.metrics = Metrics(self.plan_age)
        self.telemetry = Telemetry()
        self.arms = Arms()
        self.regret = Regret()
        self.events = Events()
        self.switch_cost = SwitchCost(_fixed_seconds(settings.planner))
        self.clock = clock
        self._rng = rng
        self._attribution = Attribution()
        self.memory = MemoryPolicy(settings.memory)

    def engine_connected(self, info: EngineInfo) -> None:
        """A connection stands; state about another engine is dropped."""
        self.metrics.connections.inc()
        self.metrics.connected.set(1)
        self.connected = True
        self.engine_error = None
        self._tell_engine(info)
        self.applied_version = None
        self.telemetry.new_call()
        # Reports in between are lost, so nothing joins across the connections.
        self._attribution = Attribution()
        if self.info is None or self.info.engine_id != info.engine_id:
            self._adopt_engine(info)
        self.info = info
        self.memory.connected(info)
        if self.planner is not None:
            self.planner.continue_from(info.plan_version)

    def engine_lost(self, error: str) -> None:
        """No connection; logged once per distinct reason."""
        if error != self.engine_error:
            _LOG.warning("the engine is away, trying again: %s", error)
            self.events.add("engine", f"away, trying again: {error}", self.clock())
        self.connected = False
        self.engine_error = error
        self.applied_version = None
        self.metrics.connected.set(0)

    def observe(self, batch: StepBatch) -> None:
        """Learn from reports, in the engine's order."""
        dropped = self.telemetry.dropped
        for report in batch.reports:
            self.metrics.observe_report(report, switched(self.telemetry.latest, report))
            self.switch_cost.observe(report)
            self.memory.observe(report)
            round_ = self._attribution.round(report)
            if round_ is not None:
                self.metrics.observe_round(round_)
                self._learn(round_)
            self._tell_changes(report)
            self.telemetry.observe_report(report)
        self.telemetry.observe_batch(batch, self.clock())
        self.metrics.dropped.inc(self.telemetry.dropped - dropped)
        if batch.reports:
            self.metrics.observe_state(batch.reports[-1])

    def change_settings(self, settings: SidecarSettings) -> None:
        """Obey `settings`, unless the engine was not built for them."""
        if self.info is not None:
            try:
                check(settings.planner, self.info.gamma_max)
            except ConfigurationError as error:
                self.refuse_settings(error)
                return
        self.settings = settings
        self.settings_error = None
        self.switch_cost.fixed_seconds = _fixed_seconds(settings.planner)
        self.memory.spec = settings.memory
        _LOG.info("settings of revision %s are in force", settings.revision)
        self.events.add("settings", f"revision {settings.revision} is in force", self.clock())
        if self.info is not None:
            self._configure(self.info)

    def refuse_settings(self, error: ConfigurationError) -> None:
        """The settings in force stay; logged and counted once per distinct error."""
        if str(error) == self.settings_error:
            return
        self.settings_error = str(error)
        self.metrics.settings_errors.inc()
        _LOG.error("settings refused, those of revision %s stay: %s", self.settings.revision, error)
        self.events.add("settings", f"refused, those of revision {self.settings.revision} stay: {error}", self.clock())

    def plan_due(self) -> Plan | None:
        """The plan to send now, if any."""
        if self.planner is None or not self.connected:
            return None
        return self.planner.due(self.clock(), self.switch_cost, may_speculate=self.memory.may_speculate)

    def memory_changed(self, change: Change, progress: ElasticProgress) -> None:
        """The engine carried out what was wanted of its memory."""
        self.memory.carried_out(change, progress, self.clock())
        self.metrics.observe_memory(change, progress)
        _LOG.info(
            "%s: %d KV blocks after %.1f ms, %d in use were moved",
            change,
            progress.blocks,
            progress.elapsed_ns * 1e-6,
            progress.moved_blocks,
        )

    def memory_refused(self, change: Change, reason: str) -> None:
        """The engine cannot do now what was wanted of its memory."""
        self.memory.refused(reason, self.clock())
        self.metrics.memory_refusals.labels(change).inc()

    def plan_applied(self, plan: Plan) -> None:
        """The engine obeys `plan`."""
        self.applied_version = plan.version
        self.applied_at = self.clock()
        if self.planner is not None:
            self.metrics.observe_plan(plan, self.planner.planned)
        self.metrics.switch_cost.set(self.switch_cost.seconds)
        self.metrics.switch_cost_per_token.set(self.switch_cost.seconds_per_token)

    def plan_age(self) -> float | None:
        """Seconds since the engine took its latest plan; None while no engine is connected or it has taken none."""
        return None if self.applied_version is None else self.clock() - self.applied_at

    def seconds_to_next(self) -> float | None:
        """How long nothing need be sent, unless something happens; None while there is nothing to send."""
        now = self.clock()
        renewal = None if self.planner is None else max(0.0, self.planner.renewal(now))
        waits = [wait for wait in (renewal, self.memory.seconds_to_change(now)) if wait is not None]
        return min(waits, default=None)

    def unready(self) -> str | None:
        """Why this sidecar does not steer the engine; None when it does."""
        if not self.connected:
            return f"the engine is not connected: {self.engine_error or 'no attempt was finished yet'}"
        if self.planner is None:
            return f"the settings do not fit the engine: {self.settings_error}"
        if self.applied_version is None or not self.planner.lives(self.clock()):
            return "no plan is in force"
        return None

    def _learn(self, round_: Round) -> None:
        if self.planner is not None:
            self._regret(self.planner, round_)
            self.arms.learn(self.planner.space.bucket(round_.batch), round_)
            self.planner.learn(round_)

    def _regret(self, planner: Planner, round_: Round) -> None:
        lost = self.regret.observe(round_, lambda batch: planner.believed(batch, self.switch_cost))
        if lost is not None:
            self.metrics.observe_regret(planner.spec.policy, lost)

    def _tell_engine(self, info: EngineInfo) -> None:
        if self.info is None:
            what = "connected"
        elif self.info.engine_id == info.engine_id:
            what = "connected again"
        else:
            what = "another one serves: it was restarted"
        self.events.add("engine", what, self.clock())

    def _tell_changes(self, report: StepReport) -> None:
        for kind, message in changes(self.telemetry.latest, report):
            self.events.add(kind, message, self.clock())

    def _adopt_engine(self, info: EngineInfo) -> None:
        _LOG.info(
            "engine %s: vLLM %s, %s + %s, lengths up to %d",
            info.engine_id,
            info.vllm_version,
            info.target_model,
            info.draft_model or "no draft",
            info.gamma_max,
        )
        self.telemetry.new_engine()
        self.switch_cost.restart()
        if self.info is not None and _kind(self.info) != _kind(info):
            # Another pair or another runner: nothing that was learnt holds.
            self.planner = None
            self.arms = Arms()
            self.switch_cost = SwitchCost(_fixed_seconds(self.settings.planner))
        try:
            check(self.settings.planner, info.gamma_max)
        except ConfigurationError as error:
            self.planner = None
            self.refuse_settings(error)
            return
        self._configure(info)

    def _configure(self, info: EngineInfo) -> None:
        before = None if self.planner is None else self.planner.policy
        if self.planner is None:
            self.planner = Planner(self.settings.planner, info.gamma_max, self._rng)
            self.planner.continue_from(info.plan_version)
        else:
            self.planner.configure(self.settings.planner, info.gamma_max)
        if self.planner.policy is not before:
            self.regret = Regret()
        self.arms.keep(self.planner.space)


def _fixed_seconds(spec: PlannerSpec) -> float | None:
    return None if spec.switch_cost == "auto" else durations.seconds(spec.switch_cost)


def _kind(info: EngineInfo) -> tuple[object, ...]:
    """What step times and acceptance depend on."""
    return (
        info.vllm_version,
        info.runner,
        info.target_model,
        info.draft_model,
        info.tensor_parallel_size,
        info.block_bytes,
    )
