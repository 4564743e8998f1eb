"""Asks once a second and shows what was said, until somebody presses Ctrl-C."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live

from nightjar_api import service as documents
from nightjar_api.containers import EngineSpec
from nightjar_api.errors import ConfigurationError
from nightjar_operator import notices
from nightjar_operator.top import sources
from nightjar_operator.top.sources import Source
from nightjar_operator.top.view import Seen, many, one

_PERIOD_SECONDS = 1.0


@dataclass(frozen=True)
class Wanted:
    """What a person asked to see."""

    address: str | None
    file: Path | None
    namespace: str | None
    pod: str | None
    kubeconfig: Path | None

    @property
    def single(self) -> bool:
        """One sidecar with all it says."""
        return self.namespace is None or self.pod is not None


async def run(wanted: Wanted, console: Console) -> None:
    """ConfigurationError when there is nothing to be seen from the start; once without a terminal."""
    async with _source(wanted) as source:
        seen = await source.ask()
        _check(wanted, seen)
        if not console.is_terminal:
            console.print(_shown(seen, console, single=wanted.single))
            return
        await _follow(source, seen, console, single=wanted.single)


async def _follow(source: Source, seen: Sequence[Seen], console: Console, *, single: bool) -> None:
    with Live(_shown(seen, console, single=single), console=console, screen=True, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(_PERIOD_SECONDS)
            try:
                seen = remembered(seen, await source.ask())
            except ConfigurationError as error:
                seen = [replace(each, silence=str(error)) for each in seen]
            live.update(_shown(seen, console, single=single), refresh=True)


def remembered(before: Sequence[Seen], now: Sequence[Seen]) -> Sequence[Seen]:
    """Who is silent now keeps what it said last."""
    said = {seen.name: seen.reading for seen in before}
    return [seen if seen.reading else replace(seen, reading=said.get(seen.name)) for seen in now]


def _shown(seen: Sequence[Seen], console: Console, *, single: bool) -> RenderableType:
    return one(seen[0], console.width) if single and seen else many(seen)


@asynccontextmanager
async def _source(wanted: Wanted) -> AsyncIterator[Source]:
    given = {"ADDRESS": wanted.address, "--file": wanted.file, "--namespace": wanted.namespace}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise ConfigurationError(f"one of ADDRESS, --file and --namespace is required, found {' and '.join(named)}")
    if wanted.namespace is not None:
        async with sources.namespace(wanted.namespace, wanted.pod, wanted.kubeconfig) as namespace:
            yield namespace
        return
    if wanted.pod is not None:
        raise ConfigurationError("--pod: --namespace is required with it, found none")
    port = EngineSpec.model_fields["port"].default if wanted.file is None else _engine_port(wanted.file)
    async with sources.address(wanted.address or f"127.0.0.1:{port + 1}") as address:
        yield address


def _engine_port(file: Path) -> int:
    service = documents.load(file)
    why = notices.why_unplanned(service)
    if why is not None:
        raise ConfigurationError(f"{file}: a service whose γ is planned is required: {why}, so there is no sidecar")
    return service.spec.engine.port


def _check(wanted: Wanted, seen: Sequence[Seen]) -> None:
    if wanted.namespace is not None and not seen:
        what = "pods of NightjarServices are" if wanted.pod is None else f"the pod {wanted.pod} of a NightjarService is"
        raise ConfigurationError(
            f"--namespace: {what} required, found none in {wanted.namespace};"
            f" see kubectl get pods -n {wanted.namespace} -l nightjar.dev/service"
        )
    if wanted.single and seen[0].silence:
        hint = "" if wanted.namespace else "; start `nightjar local`, or kubectl port-forward pod/NAME 8001"
        raise ConfigurationError(f"a sidecar that answers is required, found {seen[0].name}: {seen[0].silence}{hint}")
