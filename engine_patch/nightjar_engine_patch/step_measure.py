"""What a worker measures in one step."""

from dataclasses import dataclass

from nightjar_engine_patch.draft_passes import DraftPasses
from nightjar_engine_patch.elastic.directive import Obeyed


@dataclass(frozen=True, slots=True)
class CapturedGraphs:
    """CUDA graphs of the draft."""

    count: int
    seconds: float
    nbytes: int
    """Memory of the device that went while they were captured."""


@dataclass(slots=True)
class StepMeasure:
    """Times in nanoseconds, token counts over all requests of the step."""

    draft_weight_bytes: int
    """The same in every step; it travels here because only workers know it."""

    graphs: CapturedGraphs | None = None
    """Likewise; None where nothing is captured."""

    forward_ns: int | None = None
    """The target's forward pass and sampling, measured on the device; None: what the others left of the step."""
    draft_ns: int = 0
    """Drafting: preparing it (which replaces vLLM's own preparation), the pass over the newest tokens, the rest."""
    catch_up_ns: int = 0
    """Bringing the draft's KV up to date after steps without speculation, or after a prefill."""
    catch_up_tokens: int = 0
    stale_tokens: int = 0
    """Tokens that the draft has not read yet after this step."""
    bookkeeping_ns: int = 0
    """What our code adds in the worker to vLLM's own work."""
    elastic_ns: int = 0
    """Memory that changed hands before the step."""
    before: tuple[int, int] | None = None
    """`draft_ns` and `catch_up_ns` of the step before, if its tokens came while the device was still drafting."""
    proposed: frozenset[str] | None = None
    """Requests whose drafts came from the draft; those of all others fill up the batch. None: every draft did."""
    obeyed: Obeyed | None = None
    """The directive that came with the step, once it is carried out."""
    passes: DraftPasses | None = None
    """What drafts for which batch, the same in every step; None where there is no choice."""
