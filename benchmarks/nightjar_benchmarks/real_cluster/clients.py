"""Clients of the OpenAI API that know what a made pair must answer."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

from nightjar_benchmarks.pairs.make import Pair
from nightjar_benchmarks.pairs.reference import expected_continuation, random_prompt

_PROMPTS = 4
_TOKENS = 40
_ANSWER_SECONDS = 120


@dataclass
class Outcome:
    """What came of requests; grows while they are sent."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    """One sentence for each that failed, or whose tokens were others than the target's."""


@contextmanager
def under_load(url: str, model: str, pair: Pair, clients: int = 2) -> Iterator[Outcome]:
    """So many clients ask again and again until the block ends, and their last answers have come."""
    outcome, stop = Outcome(), threading.Event()
    threads = [
        threading.Thread(target=_ask_on, args=(url, model, pair, client, outcome, stop), name=f"client-{client}")
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


def _ask_on(url: str, model: str, pair: Pair, client: int, outcome: Outcome, stop: threading.Event) -> None:
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
