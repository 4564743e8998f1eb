"""Clients of the OpenAI API that know what a made pair must answer."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

from nightjar_benchmarks.load.client import RequestRecord, complete
from nightjar_benchmarks.load.trace import Request
from nightjar_benchmarks.pairs.make import Pair
from nightjar_benchmarks.pairs.reference import expected_continuation, random_prompt

_PROMPTS = 4
_TOKENS = 40
_ANSWER_SECONDS = 120
# Who waits in an engine's queue hears nothing until those before are answered.
_SILENCE_SECONDS = 600


@dataclass
class Outcome:
    """What came of requests; grows while they are sent."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    """One sentence for each that failed, or whose tokens were others than the target's."""


@contextmanager
def under_load(url: str, model: str, pair: Pair, clients: int = 2, pause: float = 0.0) -> Iterator[Outcome]:
    """So many clients ask again and again until the block ends, and their last answers have come.

    Each thinks for `pause` seconds after an answer.
    """
    outcome, stop = Outcome(), threading.Event()
    threads = [
        threading.Thread(target=_ask_on, args=(url, model, pair, client, outcome, stop, pause), name=f"client-{client}")
        for client in range(clients)
    ]
    for thread in threads:
        thread.start()
    try:
        yield outcome
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _ask_on(
    url: str, model: str, pair: Pair, client: int, outcome: Outcome, stop: threading.Event, pause: float
) -> None:
    prompts = [random_prompt(pair, 0, pair.shape.context_tokens, client * _PROMPTS + n) for n in range(_PROMPTS)]
    expected = [expected_continuation(pair, prompt, _TOKENS) for prompt in prompts]
    number = 0
    while not stop.is_set():
        try:
            found = ask(url, model, prompts[number % _PROMPTS], _TOKENS)
        except (httpx.HTTPError, LookupError, ValueError) as error:
            outcome.wrong.append(f"{type(error).__name__}: {error}")
            # A server that is away is not asked in a busy loop.
            stop.wait(0.2)
        else:
            if found == expected[number % _PROMPTS]:
                outcome.right += 1
                stop.wait(pause)
            else:
                outcome.wrong.append(f"{expected[number % _PROMPTS]} is required, found {found}")
        number += 1


def ask(url: str, model: str, prompt: Sequence[int], count: int) -> list[int]:
    """The `count` tokens after `prompt`, over a connection of their own; httpx.HTTPError."""
    body = {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": count,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    answer = httpx.post(f"{url}/completions", json=body, timeout=_ANSWER_SECONDS, trust_env=False).raise_for_status()
    found: list[int] = answer.json()["choices"][0]["token_ids"]
    return found


@dataclass
class Streams:
    """Requests that were all sent at once."""

    accepted: int = 0
    """Those whose answer has begun, be it with a place in the engine's queue; never falls."""
    records: list[RequestRecord] = field(default_factory=list)
    """In the requests' order; empty until all have ended."""

    @property
    def seconds(self) -> float:
        """From the first that was sent to the last that ended."""
        return max(record.end for record in self.records) - min(record.start for record in self.records)


@contextmanager
def streamed(url: str, model: str, requests: Sequence[Request]) -> Iterator[Streams]:
    """All `requests` at the same time, each over a connection of its own; the block ends when they have."""
    streams = Streams()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(asyncio.run, _stream(url, model, requests, streams))
        yield streams
        done.result()


async def _stream(url: str, model: str, requests: Sequence[Request], streams: Streams) -> None:
    async def accept(_response: httpx.Response) -> None:
        streams.accepted += 1

    async with httpx.AsyncClient(
        base_url=url,
        timeout=_SILENCE_SECONDS,
        limits=httpx.Limits(max_connections=None),
        trust_env=False,
        event_hooks={"response": [accept]},
    ) as client:
        asked = (complete(client, model, request, "streamed", time.monotonic) for request in requests)
        streams.records = list(await asyncio.gather(*asked))
