"""Joins step reports into rounds: what one choice of speculative length cost and what it gave.

Step t verifies what an earlier step drafted and drafts for a later one. Crediting a step's tokens to the
length chosen in that same step would mix arms at every change, so the cost of a round is the drafting
time of the step that drafted plus the forward time of the step that verified.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from nightjar_api.engine.v1.engine_pb2 import StepReport

# Async scheduling keeps drafts a step or two in flight; far more than that means they were dropped.
_REMEMBERED_STEPS = 64
# Below this share of the batch with full drafts (requests being caught up have none) a round's time says
# little about its length.
_FULL_SHARE = 0.75
# Under steady load most steps admit a request or two; a share of prompt tokens that small is corrected for.
_MIXED_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Round:
    """One draft-and-verify round of a batch, or one plain decode step when `gamma` is 0.

    `verified` and `accepted` count requests by draft position. `prefill_tokens` were in its verifying
    step, `prefill_share` is their largest share of the tokens of its drafting or verifying step, and
    `prompt_tokens` counts all since the round before, `recomputed_tokens` those among them of requests that had been
    sent back. `host_seconds` is the time between this step and the one before in which neither model worked; None when
    not known.
    """

    step: int
    time_ns: int
    batch: int
    gamma: int
    draft_seconds: float
    forward_seconds: float
    tokens: int
    verified: Sequence[int] = ()
    accepted: Sequence[int] = ()
    prefill_tokens: int = 0
    prefill_share: float = 0.0
    prompt_tokens: int = 0
    recomputed_tokens: int = 0
    catch_up_seconds: float = 0.0
    host_seconds: float | None = None

    @property
    def seconds(self) -> float:
        """Drafting and verification; catch-up and the host's time are apart."""
        return self.draft_seconds + self.forward_seconds

    @property
    def wall_seconds(self) -> float:
        """All the time this round took from serving, as far as it is known."""
        return self.seconds + self.catch_up_seconds + (self.host_seconds or 0.0)

    @property
    def mixed(self) -> bool:
        """Whether prompts took so much of its time that it says little about decoding."""
        return self.prefill_share > _MIXED_SHARE

    @property
    def typical(self) -> bool:
        """Whether its time is that of its length: timed, hardly a prompt in it, drafts for about everyone."""
        full = sum(self.verified) >= _FULL_SHARE * self.gamma * self.batch
        return full and not self.mixed and self.forward_seconds > 0


@dataclass(frozen=True, slots=True)
class _Drafting:
    draft_ns: int
    prefill_share: float


class Attribution:
    """Turns the reports of one engine, in order, into rounds; remembers a bounded number of steps."""

    def __init__(self) -> None:
        self._drafting: OrderedDict[int, _Drafting] = OrderedDict()
        self._last: StepReport | None = None
        self._prompt_tokens = 0
        self._recomputed_tokens = 0
        self.unattributed = 0

    def round(self, report: StepReport) -> Round | None:
        """The round that `report` completes; None when it emitted nothing or its drafting step is unknown."""
        last, self._last = self._last, report
        drafting = self._drafting.get(report.drafted_at_step)
        self._remember(report)
        self._prompt_tokens += report.prefill_tokens
        self._recomputed_tokens += report.recomputed_tokens
        if report.decode_batch == 0:
            return None
        if report.gamma_verified == 0:
            drafting = _Drafting(0, 0.0)
        elif drafting is None:
            self.unattributed += 1
            return None
        prompts = self._prompt_tokens, self._recomputed_tokens
        self._prompt_tokens = self._recomputed_tokens = 0
        return _round(report, drafting, prompts, _host_seconds(last, report))

    def _remember(self, report: StepReport) -> None:
        if report.gamma_drafted == 0:
            return
        self._drafting[report.step] = _Drafting(report.draft_ns, _prefill_share(report))
        if len(self._drafting) > _REMEMBERED_STEPS:
            self._drafting.popitem(last=False)


def _round(report: StepReport, drafting: _Drafting, prompts: tuple[int, int], host_seconds: float | None) -> Round:
    prompt_tokens, recomputed_tokens = prompts
    return Round(
        step=report.step,
        time_ns=report.time_ns,
        batch=report.decode_batch,
        gamma=report.gamma_verified,
        draft_seconds=drafting.draft_ns * 1e-9,
        forward_seconds=report.forward_ns * 1e-9,
        tokens=report.emitted_tokens,
        verified=tuple(report.verified_by_position),
        accepted=tuple(report.accepted_by_position),
        prefill_tokens=report.prefill_tokens,
        prefill_share=max(_prefill_share(report), drafting.prefill_share),
        prompt_tokens=prompt_tokens,
        recomputed_tokens=recomputed_tokens,
        catch_up_seconds=report.catch_up_ns * 1e-9,
        host_seconds=host_seconds,
    )


def _host_seconds(last: StepReport | None, report: StepReport) -> float | None:
    # An engine that had nothing to run waits for requests between two steps; that is nobody's cost.
    if last is None or report.step != last.step + 1 or last.running == 0:
        return None
    busy_ns = report.forward_ns + report.draft_ns + report.catch_up_ns
    return max(0, report.time_ns - last.time_ns - busy_ns) * 1e-9


def _prefill_share(report: StepReport) -> float:
    decoding = report.decode_batch + report.verified_tokens
    return report.prefill_tokens / (report.prefill_tokens + decoding) if report.prefill_tokens else 0.0
