"""The sidecar's state as JSON, for people and for the operator."""

from google.protobuf.json_format import MessageToDict

from nightjar_api.engine.v1.engine_pb2 import DraftResidency, EngineInfo, StepReport
from nightjar_sidecar.arms import Arm, Arms
from nightjar_sidecar.controller import Controller
from nightjar_sidecar.planner import Planner
from nightjar_sidecar.policies.protocol import Decision
from nightjar_sidecar.regret import Regret
from nightjar_sidecar.space import Bucket
from nightjar_sidecar.switch_cost import SwitchCost

Json = dict[str, object]


def status(controller: Controller) -> Json:
    """Everything `/status` says; keys are camelCase, times in seconds."""
    reason = controller.unready()
    return {
        "ready": reason is None,
        "reason": reason,
        "engine": _engine(controller),
        "settings": {
            "revision": controller.settings.revision,
            "error": controller.settings_error,
            "planner": controller.settings.planner.model_dump(by_alias=True),
        },
        "plan": _plan(controller),
        "buckets": _buckets(controller),
        "regret": _regret(controller.regret),
        "speculation": _speculation(controller),
        "switchCost": _switch_cost(controller),
        "memory": _memory(controller),
        "steps": _steps(controller),
        "memoryBytes": memory_bytes(controller.info, controller.telemetry.latest),
        "events": _events(controller),
    }


def _engine(controller: Controller) -> Json:
    info = MessageToDict(controller.info, always_print_fields_with_no_presence=True) if controller.info else None
    return {"connected": controller.connected, "error": controller.engine_error, "info": info}


def _plan(controller: Controller) -> Json:
    age, latest = controller.plan_age(), controller.telemetry.latest
    return {
        "version": controller.applied_version,
        "ageSeconds": None if age is None else round(age, 3),
        "obeyed": bool(latest.plan_version) if latest else None,
    }


def _regret(regret: Regret) -> Json:
    """The share of the latest rounds' time, as the policy believes; of how many rounds there is an estimate."""
    return {"share": _short(regret.share), "rounds": regret.rounds}


def _buckets(controller: Controller) -> list[Json]:
    """Those that the engine can fill."""
    planner, info = controller.planner, controller.info
    if planner is None:
        return []
    most = info.max_batch if info is not None and info.max_batch else planner.space.bounds[-1]
    return [
        _bucket(planner, bucket, decision, controller.switch_cost, controller.arms)
        for bucket, decision in planner.planned.items()
        if bucket.low <= most
    ]


def _bucket(planner: Planner, bucket: Bucket, decision: Decision, cost: SwitchCost, arms: Arms) -> Json:
    believed = planner.policy.score(planner.context(bucket, cost))
    return {
        "minBatch": bucket.low,
        "maxBatch": bucket.high,
        "gamma": decision.hold,
        "schedule": [{"gamma": gamma, "steps": steps} for gamma, steps in decision.schedule],
        "arms": [_arm(gamma, believed.get(gamma), arms.arm(bucket, gamma)) for gamma in planner.space.gammas],
    }


def _arm(gamma: int, believed: float | None, arm: Arm) -> Json:
    """What the policy believes a token costs, beside what rounds have shown, which no policy changes."""
    return {
        "gamma": gamma,
        "believedSecondsPerToken": _short(believed),
        "visits": arm.visits,
        "measuredSecondsPerToken": _short(arm.mean if arm.visits else None),
        "measuredMarginSeconds": _short(arm.margin),
    }


def _short(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.4g}")


def _speculation(controller: Controller) -> Json:
    telemetry = controller.telemetry
    latest = telemetry.latest
    return {
        "gamma": latest.gamma_drafted if latest else None,
        "acceptance": [round(rate, 4) for rate in telemetry.acceptance.rates(telemetry.positions)],
        "switches": {"total": telemetry.switches.total()} | dict(telemetry.switches),
        "draftResidency": DraftResidency.Name(latest.draft_residency) if latest else None,
    }


def _switch_cost(controller: Controller) -> Json:
    cost = controller.switch_cost
    return {
        "mode": controller.settings.planner.switch_cost,
        "seconds": cost.seconds,
        "secondsPerReturn": cost.seconds_per_return,
        "secondsPerStep": cost.seconds_per_step,
        "secondsPerToken": cost.seconds_per_token,
        "returns": cost.returns,
        "staleTokens": cost.stale_tokens,
    }


def _memory(controller: Controller) -> Json:
    memory = controller.memory
    done = memory.done
    return {
        "elastic": memory.spec.elastic,
        "unsupportedReason": memory.unsupported_reason,
        "draftResidency": DraftResidency.Name(memory.residency),
        "tauLowBlocks": memory.low_blocks,
        "shortSteps": memory.short_steps,
        "refusal": memory.refusal,
        "latest": None
        if done is None
        else {
            "change": done.change,
            "seconds": done.seconds,
            "movedBlocks": done.moved_blocks,
            "movedBytes": done.moved_bytes,
            "ageSeconds": round(controller.clock() - done.at, 3),
        },
    }


def _steps(controller: Controller) -> Json:
    telemetry = controller.telemetry
    latest = telemetry.latest
    return {
        "seen": telemetry.steps,
        "dropped": telemetry.dropped,
        "perSecond": round(telemetry.steps_per_second(controller.clock()), 2),
        "tokensPerSecond": round(telemetry.tokens_per_second(controller.clock()), 1),
        "latest": latest.step if latest else None,
        "batch": latest.decode_batch if latest else None,
        "running": latest.running if latest else None,
        "waiting": latest.waiting if latest else None,
        "freeBlocks": latest.free_blocks if latest else None,
        "totalBlocks": latest.total_blocks if latest else None,
    }


def memory_bytes(info: EngineInfo | None, latest: StepReport | None) -> Json | None:
    """Of one rank, by what they hold; None before the engine told its sizes.

    While the draft is away its share of every block is the target's, and so are its weights, unless they stay.
    """
    if info is None or not info.block_bytes:
        return None
    blocks = latest.total_blocks if latest else info.blocks
    away = latest is not None and latest.draft_residency == DraftResidency.DRAFT_RESIDENCY_AWAY
    return {
        "targetKv": blocks * (info.block_bytes - info.draft_block_bytes),
        "draftKv": 0 if away else blocks * info.draft_block_bytes,
        "draftWeights": 0 if away and not info.draft_weights_stay else info.draft_weight_bytes,
    }


def _events(controller: Controller) -> list[Json]:
    now = controller.clock()
    return [
        {
            "number": event.number,
            "kind": event.kind,
            "message": event.message,
            "count": event.count,
            "ageSeconds": round(now - event.at, 1),
        }
        for event in controller.events.latest_first
    ]
