"""vLLM's `num_speculative_tokens_per_batch_size`: a length per range of batch sizes, profiled beforehand.

vLLM looks it up with all requests scheduled in a step, prompts that are still being read included.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

from nightjar_api.gamma_table import Entry, check
from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.protocol import Choice, Context, Decision
from nightjar_sidecar.space import Space


def optimal(
    seconds: Callable[[int, int], float], tokens: Sequence[float], most: int, *, prompt_seconds: float = 0.0
) -> tuple[Entry, ...]:
    """The best table for measured times and acceptance: argmax over γ of tokens per second.

    `seconds(γ, batch)` is a step's time, `tokens[γ]` what a request gets of it, `most` the largest batch;
    `prompt_seconds`, the draft's reading of prompts, per token that is put out, counts against γ > 0.
    """

    def cost(gamma: int, batch: int) -> float:
        return seconds(gamma, batch) / (batch * tokens[gamma]) + (prompt_seconds if gamma else 0.0)

    entries: list[Entry] = []
    for batch in range(1, most + 1):
        gamma = min(range(len(tokens)), key=lambda gamma, batch=batch: cost(gamma, batch))  # type: ignore[misc]
        if entries and entries[-1].gamma == gamma:
            entries[-1] = entries[-1]._replace(high=batch)
        else:
            entries.append(Entry(batch, batch, gamma))
    return tuple(entries)


class StaticTable:
    """Gaps and everything beyond the last entry carry the length before them, as in vLLM."""

    def __init__(self, space: Space, entries: Sequence[Sequence[int]]) -> None:
        checked = check(entries)
        self._lows = [entry.low for entry in checked]
        self._gammas = [entry.gamma for entry in checked]
        self._gamma_max = space.gamma_max

    def gamma(self, requests: int) -> int:
        """The length for a step with so many requests."""
        return min(self._gammas[max(0, bisect_right(self._lows, requests) - 1)], self._gamma_max)

    def score(self, context: Context) -> Mapping[int, float]:
        """Nothing is believed."""
        del context
        return {}

    def predict(self, context: Context) -> Choice:
        return self.plan(context).choice

    def plan(self, context: Context) -> Decision:
        return Decision(self.gamma(context.batch if context.scheduled is None else context.scheduled))

    def learn(self, round_: Round) -> None:
        """Nothing is learnt."""

    def adopt(self, space: Space) -> None:
        self._gamma_max = space.gamma_max
