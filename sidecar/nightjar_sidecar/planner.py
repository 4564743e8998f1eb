"""Turns a policy's decisions into plans: one per engine, versions growing, renewed before they expire."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from nightjar_api import durations
from nightjar_api.engine.v1.engine_pb2 import BucketPlan, Plan
from nightjar_api.engine.v1.engine_pb2 import Segment as SegmentMessage
from nightjar_api.errors import ConfigurationError
from nightjar_api.service import PlannerSpec
from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.protocol import Context, Decision, Policy
from nightjar_sidecar.policies.registry import FACTORY_BY_NAME
from nightjar_sidecar.space import Bucket, Space
from nightjar_sidecar.switch_cost import SwitchCost

# Two renewals may be lost before the engine falls back.
_RENEWALS_PER_TTL = 3


def check(spec: PlannerSpec, engine_gamma_max: int) -> None:
    """ConfigurationError if the engine was not built for the lengths that `spec` asks for."""
    if spec.gamma_max is not None and spec.gamma_max > engine_gamma_max:
        raise ConfigurationError(
            f"planner.gammaMax: at most {engine_gamma_max} is required, the length the engine was started for,"
            f" found {spec.gamma_max}; lower it, or raise draft.numSpeculativeTokens and restart the engine"
        )
    most = engine_gamma_max if spec.gamma_max is None else spec.gamma_max
    if spec.policy == "fixed" and spec.fixed_gamma > most:
        raise ConfigurationError(
            f"planner.fixedGamma: at most {most} (planner.gammaMax, or the length the engine was started for)"
            f" is required, found {spec.fixed_gamma}; lower it or raise the limit"
        )
    if spec.longest_in_table is not None and spec.longest_in_table > most:
        raise ConfigurationError(
            f"planner.table: lengths of at most {most} (planner.gammaMax, or the length the engine was started for)"
            f" are required, found {spec.longest_in_table}; lower them or raise the limit"
        )


class Planner:
    """Decides for every bucket with the policy that `spec` names.

    Policies that were in use keep what they learnt and are taken up again when they return. `spec` must
    have passed `check` for the engine's `gamma_max`.
    """

    def __init__(self, spec: PlannerSpec, engine_gamma_max: int, rng: Random) -> None:
        self._rng = rng
        self._policies: dict[tuple[object, ...], Policy] = {}
        self._batch_by_bucket: dict[Bucket, int] = {}
        self._planned: Mapping[Bucket, Decision] = {}
        self._sent_at: float | None = None
        self._previous_gamma = 0
        self.version = 0
        self.configure(spec, engine_gamma_max)

    def configure(self, spec: PlannerSpec, engine_gamma_max: int) -> None:
        """Decide by `spec` from now on."""
        self.spec = spec
        self.space = Space.of(
            engine_gamma_max if spec.gamma_max is None else spec.gamma_max,
            spec.buckets,
        )
        self._ttl_seconds = durations.seconds(spec.plan_ttl)
        key = _identity(spec)
        if key not in self._policies:
            self._policies[key] = FACTORY_BY_NAME[spec.policy](self.space, spec, self._rng)
        self.policy = self._policies[key]
        self.policy.adopt(self.space)
        self._batch_by_bucket = {}
        self._sent_at = None

    def continue_from(self, version: int) -> None:
        """A (new) engine obeys plan `version`: the next plan is newer and goes out at once."""
        self.version = max(self.version, version)
        self._sent_at = None

    def learn(self, round_: Round) -> None:
        self._batch_by_bucket[self.space.bucket(round_.batch)] = round_.batch
        self._previous_gamma = round_.gamma
        self.policy.learn(round_)

    def due(self, now: float, cost: SwitchCost, *, may_speculate: bool = True) -> Plan | None:
        """The plan to send now, or None while the one in force says the same and is far from its end."""
        decisions = {
            bucket: self.policy.plan(self.context(bucket, cost)) if may_speculate else Decision(hold=0)
            for bucket in self.space.buckets
        }
        same = decisions.keys() == self._planned.keys() and all(
            goes_on(self._planned[bucket], decision) for bucket, decision in decisions.items()
        )
        if same:
            self._planned = decisions
        if same and self.renewal(now) > 0:
            return None
        self._planned = decisions
        self._sent_at = now
        self.version += 1
        return self._message(decisions)

    def renewal(self, now: float) -> float:
        """Seconds until the plan must be sent again."""
        if self._sent_at is None:
            return 0.0
        return self._sent_at + self._ttl_seconds / _RENEWALS_PER_TTL - now

    def lives(self, now: float) -> bool:
        """Whether the latest plan, if the engine has it, is still in force there."""
        return self._sent_at is not None and now < self._sent_at + self._ttl_seconds

    def context(self, bucket: Bucket, cost: SwitchCost) -> Context:
        """The situation a bucket is planned for: the batch it was last seen with, or its middle."""
        middle = (bucket.low + bucket.high + 1) // 2
        return Context(
            batch=self._batch_by_bucket.get(bucket, middle),
            previous_gamma=self._previous_gamma,
            switch_seconds=cost.seconds,
            switch_steps=cost.steps,
            catch_up_seconds=cost.seconds_per_token,
            catch_up_start_seconds=cost.seconds_per_step,
        )

    def believed(self, batch: int, cost: SwitchCost) -> Mapping[int, float]:
        """What the policy predicts for `batch` decoding requests: seconds per token of one, by length."""
        return self.policy.score(replace(self.context(self.space.bucket(batch), cost), batch=batch))

    @property
    def planned(self) -> Mapping[Bucket, Decision]:
        """What the engine should be doing."""
        return self._planned

    def _message(self, decisions: Mapping[Bucket, Decision]) -> Plan:
        return Plan(
            version=self.version,
            ttl_ms=max(1, round(self._ttl_seconds * 1000)),
            buckets=[
                BucketPlan(
                    max_batch=bucket.high,
                    schedule=[SegmentMessage(gamma=gamma, steps=steps) for gamma, steps in decision.schedule],
                    hold_gamma=decision.hold,
                )
                for bucket, decision in decisions.items()
            ],
        )


def _identity(spec: PlannerSpec) -> tuple[object, ...]:
    """The policy with what it is made from, so that other settings leave what it has learnt."""
    match spec.policy:
        case "fixed":
            return spec.policy, spec.fixed_gamma
        case "static-table":
            return spec.policy, *map(tuple, spec.table or ())
        case _:
            return (spec.policy,)


def goes_on(old: Decision, new: Decision) -> bool:
    """Whether an engine that follows `old` does what `new` asks for: `new` is what remains of it."""
    if new.hold != old.hold or len(new.schedule) > len(old.schedule):
        return False
    if not new.schedule:
        return True
    rest = old.schedule[-len(new.schedule) :]
    same_gammas = all(a.gamma == b.gamma for a, b in zip(rest, new.schedule, strict=True))
    return same_gammas and new.schedule[0].steps <= rest[0].steps and new.schedule[1:] == rest[1:]
