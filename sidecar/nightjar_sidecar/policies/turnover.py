"""How much of what drafts promise comes out, where requests come and go.

Who has just come has no draft yet, and who is about to end throws the rest of one away: of short answers that is
some percent of all tokens, enough to decide between lengths around break-even.
"""

from nightjar_sidecar.attribution import Round

_HALF_LIFE_ROUNDS = 200.0
_KEEP = 0.5 ** (1 / _HALF_LIFE_ROUNDS)
# At first it is believed that all comes out, as if so many rounds had shown it.
_PRIOR_ROUNDS = 50.0


class Turnover:
    """Tokens given out beyond one a request, over what their acceptance promised if all had drafted to the end."""

    def __init__(self) -> None:
        self._promised = 0.0
        self._given = 0.0

    @property
    def share(self) -> float:
        return min(1.0, self._given / self._promised) if self._promised else 1.0

    def observe(self, round_: Round, promised: float) -> None:
        """`promised` tokens a request and round; of a round with drafts for about everyone."""
        more = promised - 1
        if more <= 0:
            return
        if not self._promised:
            self._promised = self._given = _PRIOR_ROUNDS * more
        self._promised = _KEEP * self._promised + more
        # Per request: what share comes out does not depend on how many there are.
        self._given = _KEEP * self._given + round_.tokens / round_.batch - 1
