"""When the draft's memory serves as KV cache."""

from typing import ClassVar

from pydantic import Field

from nightjar_api import durations
from nightjar_api.durations import Duration
from nightjar_api.model import Model, Rule
from nightjar_api.quantities import AmountOrShare


class MemorySpec(Model):
    """When the draft's memory serves as KV cache. All but `elastic` applies to running pods without a restart."""

    elastic: bool = Field(
        default=False,
        description=(
            "Give the draft's memory to the KV cache while nothing is speculated; needs a restart. With device cuda the"
            " engine keeps a copy of the draft's weights in the host's memory, for which engine.resources need room."
        ),
    )
    tau_low: AmountOrShare = Field(
        default="10%", description="KV blocks below which free ones are short; a number, or a share such as 10%."
    )
    persist_steps: int = Field(
        default=3, ge=1, le=100_000, description="Consecutive steps that must be short before the cache expands."
    )
    dwell: Duration = Field(
        default="10s", description="Shortest time between two changes, so that the memory does not flap: 0s to 1h."
    )

    rules: ClassVar = (
        Rule(
            field="dwell",
            requires="0s to 1h is required",
            holds=lambda part: durations.seconds(part.dwell) <= 3600,
            cel=durations.cel_between("self.dwell", "0s", "1h"),
        ),
    )
