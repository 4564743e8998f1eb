"""Shapes of made models: what decides the cost of a step."""

from dataclasses import dataclass

CONTEXT_HEADS = 3  # odd, so that what they read has a majority


@dataclass(frozen=True)
class ModelShape:
    """One Llama-like decoder; ValueError when the construction of `weights` does not fit into it."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int

    def __post_init__(self) -> None:
        if self.heads < CONTEXT_HEADS or self.heads % self.kv_heads:
            raise ValueError(
                f"heads: at least {CONTEXT_HEADS} and a multiple of kv_heads are required,"
                f" found heads={self.heads}, kv_heads={self.kv_heads}"
            )
        if self.head_dim < 32 or self.head_dim % 2:
            raise ValueError(
                f"head_dim: an even number of at least 32 is required (fewer rotary phases do not tell"
                f" positions apart), found {self.head_dim}"
            )
        if self.hidden < 64 or self.layers < 1 or self.intermediate < 1:
            raise ValueError(f"hidden >= 64, layers >= 1 and intermediate >= 1 are required, found {self}")

    def parameters(self, vocab_size: int) -> int:
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        layer = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden
        return self.layers * layer + 2 * vocab_size * self.hidden + self.hidden


@dataclass(frozen=True)
class PairShape:
    """A target and a draft over one vocabulary.

    `max_positions` are tokens of prompt and output together; `offsets` say how far back, in tokens, the
    context heads of the first layer look.
    """

    vocab_size: int
    target: ModelShape
    draft: ModelShape
    max_positions: int = 4096
    offsets: tuple[int, ...] = (2, 17, 61)

    @property
    def context_tokens(self) -> int:
        """A prompt of this length or longer makes the output predictable."""
        return max(self.offsets) + 1

    def __post_init__(self) -> None:
        if len(set(self.offsets)) != CONTEXT_HEADS or min(self.offsets) < 1:
            raise ValueError(f"offsets: {CONTEXT_HEADS} different ones from 1 are required, found {self.offsets}")
        if self.vocab_size < 512:
            raise ValueError(f"vocab_size: at least 512 is required (256 are single bytes), found {self.vocab_size}")


# For tests: starts as fast as a model can.
TINY = PairShape(
    vocab_size=2048,
    target=ModelShape(hidden=256, layers=2, heads=4, kv_heads=2, head_dim=64, intermediate=1024),
    draft=ModelShape(hidden=256, layers=1, heads=4, kv_heads=2, head_dim=32, intermediate=256),
)

# For the demo on a few CPU cores, in float32: one request's step is bound by memory and costs many draft
# steps, a step of a hundred tokens is bound by arithmetic, and a minute has a thousand steps to learn from.
# Short offsets allow short prompts: the demo is about decoding.
DEMO = PairShape(
    vocab_size=4096,
    target=ModelShape(hidden=768, layers=4, heads=12, kv_heads=4, head_dim=64, intermediate=3072),
    draft=ModelShape(hidden=256, layers=1, heads=4, kv_heads=2, head_dim=64, intermediate=512),
    offsets=(2, 7, 23),
)

SHAPES = {"tiny": TINY, "demo": DEMO}
