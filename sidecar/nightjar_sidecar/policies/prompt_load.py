"""What is read beside decoding: prompts for every token that is written, and again what was sent back.

New prompts come with what is written, whatever the length. But where blocks are short the scheduler lets a request in
whenever there is room for what it has, and sends one back when there is none for what all are to write: about as many
in each round, however much a round gives.
"""

_HALF_LIFE_NS = 20_000_000_000


class PromptLoad:
    """Discounted over the engine's time."""

    def __init__(self) -> None:
        self._prompt = 0.0
        self._recomputed = 0.0
        self._emitted = 0.0
        self._rounds = 0.0
        self._rounds_with_prompts = 0.0
        self._last_ns: int | None = None

    @property
    def per_emitted_token(self) -> float:
        """Tokens of new prompts."""
        return self._prompt / self._emitted if self._emitted else 0.0

    @property
    def share_of_rounds(self) -> float:
        """Of rounds, those before which a prompt was read."""
        return self._rounds_with_prompts / self._rounds if self._rounds else 0.0

    @property
    def recomputed_per_round(self) -> float:
        """Tokens of requests that had been sent back."""
        return self._recomputed / self._rounds if self._rounds else 0.0

    def observe(self, now_ns: int, prompt_tokens: int, emitted_tokens: int, recomputed_tokens: int = 0) -> None:
        """Of one round; `recomputed_tokens` are among `prompt_tokens`."""
        elapsed = now_ns - self._last_ns if self._last_ns is not None else 0
        keep = 0.5 ** (max(0, elapsed) / _HALF_LIFE_NS)
        self._prompt = keep * self._prompt + prompt_tokens - recomputed_tokens
        self._recomputed = keep * self._recomputed + recomputed_tokens
        self._emitted = keep * self._emitted + emitted_tokens
        self._rounds = keep * self._rounds + 1
        self._rounds_with_prompts = keep * self._rounds_with_prompts + (prompt_tokens > 0)
        self._last_ns = now_ns
