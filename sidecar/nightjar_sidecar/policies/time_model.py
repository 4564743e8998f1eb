"""How long a round takes, by bucket and length.

Each (bucket, γ) keeps a robust location of its latest rounds. Where nothing was seen, a smooth model
fitted to all locations gives the shape and the nearest length seen in the bucket gives the level.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.draft_line import DraftLine
from nightjar_sidecar.policies.drift import Change, Drift, Kind
from nightjar_sidecar.policies.forward_curve import ForwardCurve, Pass, knot
from nightjar_sidecar.policies.robust import location
from nightjar_sidecar.policies.time_cells import ROUNDS_TO_BE_SURE, Cell, Host, Passes, Reference
from nightjar_sidecar.space import Bucket

# A cell timed once or twice may have met a compilation.
ROUNDS_TO_TRUST = 3
# Rounds of the reference after which a cell counts as measured in other times.
_REFERENCE_ROUNDS = 8
# Rounds between two fits of the smooth model: few at first, then a share of all rounds so far, up to a most.
_REFIT_EVERY = 16
_REFIT_SHARE = 1 / 16
_REFIT_AT_MOST = 128
_RATIOS_FOR_SPREAD = 4
# Batches that differ by less need no correction.
_SAME_BATCH = 0.05
# How far a prediction may be off, as a relative standard deviation: at first, and at least, once predictions have
# proved themselves,
_DOUBT = 0.1
_LEAST_DOUBT = 0.03
# … more the farther the nearest measured pass is, for a knee may lie between,
_DOUBT_PER_OCTAVE = 0.05
# and where there is no ground for a prediction at all.
_BLIND_DOUBT = 0.5
# Rounds that halve it, and what comes back while a cell is not seen, all of it after so long.
_DOUBT_ROUNDS = 1.5
_STALE_DOUBT = 0.025
_STALE_NS = 300_000_000_000


class TimeModel:
    """Seconds of a round; knows only rounds it was shown, and their own time stamps."""

    def __init__(self) -> None:
        self._cells: dict[Bucket, dict[int, Cell]] = {}
        # By knot of tokens and length.
        self._passes: dict[tuple[int, int], Passes] = {}
        self._host: dict[Bucket, Host] = {}
        self._last_gamma: dict[Bucket, int] = {}
        self._forward = ForwardCurve()
        self._draft = DraftLine()
        self._spread: float | None = None
        self._forward_drift = Drift()
        self._draft_drift = Drift()
        self._rounds_to_refit = 0
        self._rounds = 0
        # What follows from the latest fit, filled in as it is asked for: decisions come far more often than fits.
        self.fits = 0
        self._shapes: dict[tuple[int, float], tuple[float, float]] = {}
        self._known: dict[tuple[Bucket, int], dict[int, Cell]] = {}

    def learn(self, bucket: Bucket, round_: Round) -> None:
        """Take a typical round into account."""
        cells = self._cells.setdefault(bucket, {})
        cell = cells.setdefault(round_.gamma, Cell())
        forward_seconds = self._without_prompts(round_)
        if cell.count >= ROUNDS_TO_BE_SURE:
            self._follow_drift((bucket, round_.gamma), cell, forward_seconds, round_.draft_seconds)
        cell.add(round_, forward_seconds)
        last = self._last_gamma.get(bucket, round_.gamma)
        if last != round_.gamma and cells[last].count >= _REFERENCE_ROUNDS:
            other = cells[last]
            cell.reference = Reference(last, other.count, other.seconds, other.batch)
        self._last_gamma[bucket] = round_.gamma
        if round_.host_seconds is not None:
            self._host.setdefault(bucket, Host()).add(round_.host_seconds)
        self._rounds += 1
        self._rounds_to_refit -= 1
        if cell.count <= ROUNDS_TO_BE_SURE:
            self._known.clear()
        if cell.count <= ROUNDS_TO_TRUST or self._rounds_to_refit <= 0:
            self._refit()
        else:
            self._compare(round_.gamma, cell)

    def learn_passes(self, round_: Round) -> None:
        """Take a round into account that is typical of no bucket: its passes still teach the curves.

        Prompts took their share of it, or some requests were being caught up. A busy engine may never have another
        kind: without it nothing would be known of a length at such a load.
        """
        tokens = round_.batch + sum(round_.verified) + round_.prefill_tokens
        passes = self._passes.setdefault((knot(tokens), round_.gamma), Passes())
        passes.add(round_, float(tokens))
        self._rounds += 1
        self._rounds_to_refit -= 1
        if passes.count == ROUNDS_TO_TRUST or (self._rounds_to_refit <= 0 and passes.count > ROUNDS_TO_TRUST):
            self._refit()

    def count(self, bucket: Bucket, gamma: int) -> int:
        """Rounds that the belief about this cell rests on."""
        cell = self._cells.get(bucket, {}).get(gamma)
        return cell.count if cell else 0

    def seconds(self, bucket: Bucket, gamma: int, batch: float, at_least: int = ROUNDS_TO_TRUST) -> float | None:
        """Expected seconds of a round, the host's included; None when no round at all was timed.

        A cell timed less than `at_least` times counts as unseen if the bucket has one that is better known.
        """
        found = self.lengths(bucket, (gamma,), batch, at_least)
        return found[0] if found else None

    def lengths(
        self, bucket: Bucket, gammas: Iterable[int], batch: float, at_least: int = ROUNDS_TO_TRUST
    ) -> list[float]:
        """`seconds` of each length; empty when no round at all was timed."""
        if not self._forward:
            return []
        host = self._host.get(bucket)
        idle = host.seconds if host else 0.0
        cells = self._cells.get(bucket)
        if not cells:
            return [sum(self._shape(gamma, batch)) + idle for gamma in gammas]
        found = []
        known = self._known.setdefault((bucket, at_least), {})
        for gamma in gammas:
            cell = known.get(gamma) or known.setdefault(gamma, _best_known(cells, gamma, at_least))
            drift = self._drift(cell, cells) if cell.reference else 1.0
            forward, draft = self._shapes.get((gamma, batch)) or self._shape(gamma, batch)
            found.append((forward * cell.forward_level + draft * cell.draft_level) * drift + idle)
        return found

    def benefit_of_doubt(self, bucket: Bucket, gamma: int) -> float:
        """Below 1 where a cell timed only a few times looks worse than its neighbours say it should."""
        if not ROUNDS_TO_TRUST <= self.count(bucket, gamma) < ROUNDS_TO_BE_SURE:
            return 1.0
        measured = self.seconds(bucket, gamma, bucket.high)
        modelled = self.seconds(bucket, gamma, bucket.high, ROUNDS_TO_BE_SURE)
        return min(1.0, modelled / measured) if modelled and measured else 1.0

    def grounded(self, gamma: int) -> bool:
        """Whether anything tells how the time of this length grows with a batch."""
        return self._forward.has_slope and (gamma == 0 or bool(self._draft))

    def prompt_seconds(self, gamma: int, batch: float, prompt_tokens: float) -> float:
        """What so many tokens of prompts add to a pass, as the smooth model has it."""
        tokens = batch * (gamma + 1)
        return self._forward(tokens + prompt_tokens, batch) - self._forward(tokens, batch)

    def draft_seconds(self, gamma: int, requests: float) -> float:
        """What it takes so many requests to draft, as the smooth model has it; 0 while no draft was timed."""
        return self._draft(gamma, requests)

    def doubt(self, bucket: Bucket, gamma: int, now_ns: int, tries: int = 0) -> float:
        """How far a prediction may be off, as a relative standard deviation.

        `tries` were made in vain to time the cell; each tells about as much as a round.
        """
        cell = self._cells.get(bucket, {}).get(gamma)
        # Rounds that are not believed yet end no doubt.
        count = cell.count if cell and cell.count >= ROUNDS_TO_TRUST else 0
        stale = _STALE_DOUBT * min(1.0, (now_ns - cell.seen_ns) / _STALE_NS) if cell else 0.0
        return self._first_doubt(bucket, gamma, timed=cell is not None) / (1 + (count + tries) / _DOUBT_ROUNDS) + stale

    def _first_doubt(self, bucket: Bucket, gamma: int, *, timed: bool) -> float:
        """Before the cell's own rounds tell more."""
        if not timed and not self.grounded(gamma):
            return _BLIND_DOUBT
        usual = _DOUBT if self._spread is None else min(_DOUBT, max(_LEAST_DOUBT, self._spread))
        octaves = 0.0 if timed else self._forward.octaves_away(bucket.high * (gamma + 1))
        return usual + _DOUBT_PER_OCTAVE * octaves

    def keep(self, buckets: Container[Bucket]) -> None:
        """Forget all other buckets."""
        self._cells = {bucket: cells for bucket, cells in self._cells.items() if bucket in buckets}
        self._host = {bucket: times for bucket, times in self._host.items() if bucket in buckets}
        self._last_gamma = {bucket: gamma for bucket, gamma in self._last_gamma.items() if bucket in buckets}
        self._known.clear()

    def _shape(self, gamma: int, batch: float) -> tuple[float, float]:
        """The smooth model: a forward pass by verified tokens; draft passes, each linear in requests."""
        shape = self._shapes.get((gamma, batch))
        if shape is None:
            shape = self._forward(batch * (gamma + 1), batch), self._draft(gamma, batch)
            self._shapes[gamma, batch] = shape
        return shape

    def _compare(self, gamma: int, cell: Cell) -> None:
        """What slows only drafts says nothing of passes, and the other way round."""
        forward, draft = self._shape(gamma, cell.batch)
        cell.level = cell.seconds / (forward + draft)
        cell.forward_level = cell.forward / forward
        cell.draft_level = cell.draft / draft if draft > 0 else 1.0

    def _follow_drift(self, kind: Kind, cell: Cell, forward_seconds: float, draft_seconds: float) -> None:
        """What changed for all cells alike is not learnt anew by each."""
        known_ns = cell.seen_ns
        forward = self._forward_drift.observe(forward_seconds / cell.forward, kind, known_ns)
        draft = self._draft_drift.observe(draft_seconds / cell.draft, kind, known_ns) if cell.draft > 0 else None
        if forward:
            self._scale(forward, kind, forward.factor, 1.0)
        if draft:
            self._scale(draft, kind, 1.0, draft.factor)

    def _scale(self, change: Change, kind: Kind, forward: float, draft: float) -> None:
        """Cells that show a change keep what shows it, all others are believed changed.

        The round that made it sure, of `kind`, is still to be added to its cell.
        """
        shown_by = change.shown_by - Counter([kind])
        for bucket, cells in self._cells.items():
            for gamma, cell in cells.items():
                if shown_by[bucket, gamma]:
                    cell.keep_latest(shown_by[bucket, gamma])
                else:
                    cell.scale(forward, draft, change.after_ns)
        for passes in self._passes.values():
            passes.scale(forward, draft, change.after_ns)
        self._rounds_to_refit = 0

    def _without_prompts(self, round_: Round) -> float:
        if not round_.prefill_tokens:
            return round_.forward_seconds
        tokens = round_.batch * (round_.gamma + 1)
        whole = self._forward(tokens + round_.prefill_tokens, round_.batch)
        return round_.forward_seconds * (self._forward(tokens, round_.batch) / whole if whole else 1.0)

    def _drift(self, cell: Cell, cells: dict[int, Cell]) -> float:
        """By how much the bucket's times have changed since `cell` was measured (longer contexts, say)."""
        then = cell.reference
        now = cells[then.gamma] if then else cell
        if then is None or now.seen_ns < cell.seen_ns or now.count - then.count < _REFERENCE_ROUNDS:
            return 1.0
        drift = now.seconds / then.seconds
        if abs(now.batch - then.batch) > _SAME_BATCH * then.batch:
            drift *= sum(self._shape(then.gamma, then.batch)) / sum(self._shape(then.gamma, now.batch))
        return drift

    def _refit(self) -> None:
        self._rounds_to_refit = round(min(_REFIT_AT_MOST, max(_REFIT_EVERY, _REFIT_SHARE * self._rounds)))
        cells = [(gamma, cell) for cells in self._cells.values() for gamma, cell in cells.items()]
        passes = [
            Pass(cell.batch * (gamma + 1), cell.batch, cell.forward, min(cell.count, ROUNDS_TO_BE_SURE))
            for gamma, cell in _trusted(cells)
        ]
        drafts = [
            (gamma, cell.batch, cell.draft, min(cell.count, ROUNDS_TO_BE_SURE))
            for gamma, cell in _trusted([(gamma, cell) for gamma, cell in cells if cell.draft > 0])
        ]
        known = {knot(each.tokens) for each in passes}
        drafted = {(gamma, knot(batch)) for gamma, batch, _, _ in drafts}
        for (_, gamma), other in self._passes.items():
            if other.count < ROUNDS_TO_TRUST:
                continue
            *measured, _ = zip(*other.samples, strict=True)
            tokens, requests, forward, draft, drafting = map(location, measured)
            if knot(tokens) not in known:
                passes.append(Pass(tokens, requests, forward, other.weight))
            if draft > 0 and drafting >= 1 and (gamma, knot(drafting)) not in drafted:
                drafts.append((gamma, drafting, draft, other.weight))
        self._forward = ForwardCurve(passes)
        self._draft = DraftLine(drafts)
        self.fits += 1
        self._shapes.clear()
        self._known.clear()
        for gamma, cell in cells:
            self._compare(gamma, cell)
        self._spread = _spread(self._cells.values())


def _trusted(cells: Sequence[tuple[int, Cell]]) -> Sequence[tuple[int, Cell]]:
    """Those of a few rounds, for a spike in one of two would bend the curves for all; at the very first, any."""
    return [(gamma, cell) for gamma, cell in cells if cell.count >= ROUNDS_TO_TRUST] or cells


def _best_known(cells: Mapping[int, Cell], gamma: int, at_least: int) -> Cell:
    """The cell that a length of a bucket is judged by: its own, or the best known, of equals the nearest."""
    cell = cells.get(gamma)
    if cell is not None and cell.count >= at_least:
        return cell
    return cells[min(cells, key=lambda seen: (-min(cells[seen].count, ROUNDS_TO_BE_SURE), abs(seen - gamma)))]


def _spread(buckets: Iterable[Mapping[int, Cell]]) -> float | None:
    """By which ratio the lengths of a bucket typically differ from the model's shape; None when not known."""
    levels = [[cell.level for cell in cells.values() if cell.count >= ROUNDS_TO_TRUST] for cells in buckets]
    ratios = [max(level, of[0]) / min(level, of[0]) - 1 for of in levels for level in of[1:]]
    return location(ratios) if len(ratios) >= _RATIOS_FOR_SPREAD else None
