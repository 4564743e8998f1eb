"""Readings as a terminal shows them. Pure; no meaning is carried by colour alone."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nightjar_operator.top.reading import Arm, Happened, Reading

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_BAR_CELLS = 48
_PARTS = (
    ("█", "blue", "target's KV"),
    ("▒", "yellow", "draft's KV"),
    ("░", "green", "draft's weights"),
)
_PLAN_TITLE = "ms per token: belief, ± of the measured, rounds (✓ plan, ○ none served yet, ▶ now, → trying)"
# Columns for a bucket's name, and for a belief with how well it is known, such as "3.16✓ ±12% 340".
_ROW_HEAD, _CELL = 10, 15
_AT_HOME = "on device"
# Of each kind, so that γ, which changes often, leaves room for what seldom happens.
_EVENTS_OF_A_KIND = 3


@dataclass(frozen=True)
class Seen:
    """One sidecar: what it said last, and why it says nothing now."""

    name: str
    reading: Reading | None = None
    silence: str | None = None


def one(seen: Seen, width: int) -> RenderableType:
    """Everything about one sidecar; how well beliefs are known only where `width` columns have room for it."""
    parts: list[RenderableType] = [_title(seen)]
    reading = seen.reading
    if reading is None:
        return Group(*parts)
    if reading.trouble:
        parts.append(Text(f"! {reading.trouble}", style="red"))
    parts.append(_now(reading))
    if reading.memory:
        parts.append(_memory(reading.memory, reading.residency))
    parts.append(_planning(reading))
    if reading.buckets:
        parts += [Text(_PLAN_TITLE, style="bold"), _plan(reading, width)]
    parts += [Text("what happened lately", style="bold"), _happened(_lately(reading.happened))]
    return Group(*parts)


def many(all_seen: Sequence[Seen]) -> RenderableType:
    """A row a pod, and below what is wrong with any."""
    table = Table(box=None, pad_edge=False)
    for name in ("pod", "γ", "run", "wait", "tok/s", "accepted %", "return", "draft", "KV used", "plan"):
        table.add_column(name, justify="left" if name in ("pod", "draft") else "right", no_wrap=True)
    for seen in all_seen:
        mark = " !" if seen.silence or (seen.reading and seen.reading.trouble) else ""
        table.add_row(seen.name + mark, *_cells(seen.reading))
    troubles = (
        Text(f"! {seen.name}: {text}", style="red")
        for seen in all_seen
        for text in (seen.silence, seen.reading.trouble if seen.reading else None)
        if text
    )
    return Group(table, *troubles)


def duration(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs" if seconds else "0"


def size(count: float) -> str:
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{count:.{1 if count < 100 and unit else 0}f} {_UNITS[unit]}"


def _title(seen: Seen) -> Text:
    title = Text("nightjar ", style="bold").append(seen.name)
    if seen.reading:
        title.append(f"  {seen.reading.models}  policy {seen.reading.policy}, settings {seen.reading.revision}", "dim")
    if seen.silence:
        title.append(f"\n✕ no answer, trying again: {seen.silence}", style="red")
    return title


def _now(reading: Reading) -> Table:
    table = Table(box=None, pad_edge=False)
    cells = {
        "run": _count(reading.running),
        "wait": _count(reading.waiting),
        "batch": _count(reading.batch),
        "γ": _count(reading.gamma),
        "tok/s": f"{reading.tokens_per_second:,.0f}",
        "steps/s": f"{reading.steps_per_second:,.0f}",
        "accepted %": _acceptance(reading),
        "return": duration(reading.switch_seconds),
        "KV used": _in_use(reading),
        "plan": _version(reading),
    }
    for name in cells:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row(*cells.values())
    return table


def _cells(reading: Reading | None) -> Sequence[str]:
    if reading is None:
        return ["–"] * 9
    return (
        _count(reading.gamma),
        _count(reading.running),
        _count(reading.waiting),
        f"{reading.tokens_per_second:,.0f}",
        _acceptance(reading),
        duration(reading.switch_seconds),
        reading.residency or "–",
        _in_use(reading),
        _version(reading),
    )


def _planning(reading: Reading) -> Text:
    """What a plan's figures are worth: how old they are, and what they cost by the planner's own lights."""
    text = Text("plan ", style="bold")
    if reading.plan_age_seconds is None:
        return text.append("none was taken", style="not bold")
    text.append(f"taken {_age(reading.plan_age_seconds)} ago", style="not bold")
    if reading.regret is not None:
        text.append(f", regret {100 * reading.regret:.1f} % as believed", style="not bold")
    return text


def _plan(reading: Reading, width: int) -> Table:
    """A line a bucket; what rounds measured is on the page."""
    buckets, batch = reading.buckets, reading.batch
    known = width >= _ROW_HEAD + _CELL * len(buckets[0].arms)
    table = Table(box=None, pad_edge=False)
    table.add_column("batch", no_wrap=True)
    for arm in buckets[0].arms:
        table.add_column(f"γ = {arm.gamma}", justify="right", no_wrap=True)
    for index, bucket in enumerate(buckets):
        here = batch is not None and bucket.low <= batch and (batch <= bucket.high or index == len(buckets) - 1)
        span = f"{bucket.low}" if bucket.low == bucket.high else f"{bucket.low}–{bucket.high}"
        # Without a plan in force nothing is held.
        held = None if reading.plan_version is None else bucket.gamma
        trying = "" if held is None or bucket.trying is None else f" → {bucket.trying}"
        sign = "✓" if any(arm.visits for arm in bucket.arms) else "○"
        cells = (_arm(arm, sign if arm.gamma == held else "", known=known) for arm in bucket.arms)
        table.add_row(f"{'▶' if here else ' '} {span}{trying}", *cells)
    return table


def _arm(arm: Arm, sign: str, *, known: bool) -> Text:
    believed = "–" if arm.believed_seconds is None else _three_digits(arm.believed_seconds * 1e3)
    text = Text(believed + sign, style="bold" if sign == "✓" else "")
    return text.append(_known(arm), style="not bold dim") if known else text


def _three_digits(number: float) -> str:
    """Zeros at the end too, so that the figures of a column stand one below the other."""
    return f"{number:.0f}" if number >= 99.95 else f"{number:#.3g}"


def _known(arm: Arm) -> str:
    """How well: the interval of the measured mean, and the rounds that it rests on."""
    if not arm.visits:
        return ""
    rounds = f"{arm.visits}" if arm.visits < 1000 else f"{arm.visits / 1000:.0f}k"
    if arm.margin_seconds is None or not arm.measured_seconds:
        return f" {rounds}"
    return f" ±{100 * arm.margin_seconds / arm.measured_seconds:.0f}% {rounds}"


def _memory(memory: tuple[int, int, int], residency: str | None) -> Text:
    total = sum(memory) or 1
    text = Text("memory ", style="bold")
    for count, (sign, style, _) in zip(memory, _PARTS, strict=True):
        text.append(sign * round(_BAR_CELLS * count / total), style=f"not bold {style}")
    text.append(f" {size(total)}\n", style="not bold")
    for count, (sign, style, name) in zip(memory, _PARTS, strict=True):
        text.append(f"  {sign} ", style=f"not bold {style}").append(f"{name} {size(count)}", style="not bold")
    return text if residency in (None, _AT_HOME) else text.append(f" ({residency})", style="not bold")


def _lately(happened: Sequence[Happened]) -> Iterator[Happened]:
    shown: Counter[str] = Counter()
    for event in happened:
        shown[event.kind] += 1
        if shown[event.kind] <= _EVENTS_OF_A_KIND:
            yield event


def _happened(events: Iterable[Happened]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True, min_width=8)
    table.add_column(no_wrap=True, min_width=8)
    table.add_column(overflow="fold")
    for event in events:
        times = f" ({event.count} times)" if event.count > 1 else ""
        table.add_row(_age(event.age_seconds), event.kind, Text(f"{event.message}{times}"))
    return table


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _version(reading: Reading) -> str:
    return "–" if reading.plan_version is None else f"#{reading.plan_version}"


def _acceptance(reading: Reading) -> str:
    return " ".join(f"{100 * rate:.0f}" for rate in reading.acceptance[:4]) or "–"


def _in_use(reading: Reading) -> str:
    if not reading.total_blocks or reading.free_blocks is None:
        return "–"
    return f"{100 * (1 - reading.free_blocks / reading.total_blocks):.0f} %"
