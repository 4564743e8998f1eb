"""One streamed completion against an OpenAI-compatible server."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx

from nightjar_benchmarks.load.trace import Request

Clock = Callable[[], float]


@dataclass
class RequestRecord:
    """What came of one request. Times are seconds on the caller's clock."""

    id: str
    phase: str
    start: float
    chunk_times: list[float] = field(default_factory=list)  # one per chunk that brought tokens
    chunk_tokens: list[int] = field(default_factory=list)  # how many it brought
    token_ids: list[int] = field(default_factory=list)
    end: float = 0.0
    error: str | None = None

    @property
    def first_token(self) -> float | None:
        return self.chunk_times[0] if self.chunk_times else None


async def complete(client: httpx.AsyncClient, model: str, request: Request, phase: str, clock: Clock) -> RequestRecord:
    """Send `request` to the client's base URL. What goes wrong ends up in `error`, never as an exception."""
    record = RequestRecord(id=request.id, phase=phase, start=clock())
    try:
        async with client.stream("POST", "completions", json=_body(model, request)) as response:
            if response.status_code != httpx.codes.OK:
                text = (await response.aread()).decode(errors="replace")
                record.error = f"HTTP {response.status_code}: {text[:300]}"
            else:
                async for line in response.aiter_lines():
                    _take(record, line, clock)
    except (httpx.HTTPError, ValueError, LookupError) as error:
        record.error = f"{type(error).__name__}: {error}"
    record.end = clock()
    if record.error is None and len(record.token_ids) != request.output_tokens:
        record.error = f"{request.output_tokens} tokens are required, found {len(record.token_ids)}"
    return record


def tokens_by(records: Iterable[RequestRecord]) -> list[tuple[float, int]]:
    """(time, tokens) of every chunk of all records, in order of time."""
    return sorted(
        (time, tokens)
        for record in records
        for time, tokens in zip(record.chunk_times, record.chunk_tokens, strict=True)
    )


def _body(model: str, request: Request) -> dict[str, Any]:
    return {
        "model": model,
        "prompt": list(request.prompt_ids),
        "max_tokens": request.output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
    }


def _take(record: RequestRecord, line: str, clock: Clock) -> None:
    """Add one line of the event stream to `record`."""
    if not line.startswith("data: ") or line == "data: [DONE]":
        return
    event = json.loads(line.removeprefix("data: "))
    if "error" in event:
        record.error = f"server: {json.dumps(event['error'])[:300]}"
        return
    tokens = [token for choice in event["choices"] for token in choice.get("token_ids") or []]
    if tokens:
        record.chunk_times.append(clock())
        record.chunk_tokens.append(len(tokens))
        record.token_ids += tokens
