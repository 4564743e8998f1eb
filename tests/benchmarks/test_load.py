import asyncio
import json

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar_benchmarks.load import stats
from nightjar_benchmarks.load.client import RequestRecord, complete
from nightjar_benchmarks.load.replay import PhaseRun, replay
from nightjar_benchmarks.load.trace import Phase, Request, requests_of
from nightjar_benchmarks.pairs import TINY, Pair

REQUEST = Request(id="quiet-000", prompt_ids=(5, 6), output_tokens=3)


def ticking():
    now = iter(range(10_000))
    return lambda: float(next(now))


def events(*chunks):
    lines = [f"data: {json.dumps({'choices': [{'token_ids': ids}]})}\n\n" for ids in chunks]
    return "".join([*lines, "data: [DONE]\n\n"])


async def ask(handler, request=REQUEST):
    transport = httpx.MockTransport(handler)
    async with httpx.AsyncClient(base_url="http://engine/v1", transport=transport) as client:
        return await complete(client, "demo", request, "quiet", ticking())


async def test_a_streamed_completion_is_recorded_chunk_by_chunk():
    asked = []

    def handler(request):
        asked.append((request.url.path, json.loads(request.content)))
        return httpx.Response(200, text=events([7], [8, 9], []))

    record = await ask(handler)
    assert record.token_ids == [7, 8, 9]
    assert record.chunk_tokens == [1, 2]
    assert record.start < record.first_token < record.chunk_times[1] < record.end
    assert record.error is None
    path, body = asked[0]
    assert path == "/v1/completions"
    assert body["prompt"] == [5, 6]
    assert (body["max_tokens"], body["ignore_eos"], body["temperature"]) == (3, True, 0)
    assert (body["stream"], body["return_token_ids"]) == (True, True)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (httpx.Response(503, text="loading"), "HTTP 503: loading"),
        (httpx.Response(200, text=events([7])), "3 tokens are required, found 1"),
        (httpx.Response(200, text='data: {"error": {"message": "engine died"}}\n\n'), "engine died"),
        (httpx.Response(200, text="data: nonsense\n\n"), "JSONDecodeError"),
        (httpx.Response(200, text="data: {}\n\n"), "KeyError"),
    ],
)
async def test_what_goes_wrong_is_recorded(answer, message):
    assert message in (await ask(lambda _: answer)).error


async def test_a_lost_connection_is_recorded():
    def handler(request):
        raise httpx.ReadError("reset", request=request)

    assert (await ask(handler)).error == "ReadError: reset"


def test_requests_depend_on_nothing_but_the_arguments(tmp_path):
    pair = Pair(tmp_path, TINY, (1.0, 1.0), seed=0)
    phase = Phase("surge", concurrency=2, requests=20, region=1, output_tokens=(4, 9))
    made = requests_of(pair, phase, prompt_tokens=64, seed=1)
    assert made == requests_of(pair, phase, prompt_tokens=64, seed=1)
    assert made != requests_of(pair, phase, prompt_tokens=64, seed=2)
    assert len({request.prompt_ids for request in made}) == len(made)
    assert {request.output_tokens for request in made} == set(range(4, 10))
    assert {int(pair.graph.regions[token]) for request in made for token in request.prompt_ids} == {1}


@pytest.fixture
def served(monkeypatch):
    """A server in memory that notes how many requests are in flight."""
    state = {"now": 0, "most": 0}

    async def fake(client, model, request, phase, clock):
        state["now"] += 1
        state["most"] = max(state["most"], state["now"])
        record = RequestRecord(request.id, phase, start=clock())
        for token in range(request.output_tokens):
            await asyncio.sleep(0)
            record.chunk_times.append(clock())
            record.chunk_tokens.append(1)
            record.token_ids.append(token)
        state["now"] -= 1
        record.end = clock()
        return record

    monkeypatch.setattr("nightjar_benchmarks.load.replay.complete", fake)
    return state


async def test_a_phase_keeps_its_concurrency_and_serves_every_request_once(served):
    phases = [Phase(name, concurrency, 7, 0, (3, 3)) for name, concurrency in (("quiet", 1), ("surge", 4))]
    trace = [(phase, [Request(f"{phase.name}-{n}", (1,), 3) for n in range(7)]) for phase in phases]
    done = []
    runs = await replay("http://engine/v1", "demo", trace, ticking(), done.append)
    assert served["most"] == 4
    assert sorted(record.id for record in done) == sorted(request.id for _, asked in trace for request in asked)
    assert runs[0].end <= runs[1].start
    assert [len(run.records) for run in runs] == [7, 7]


def record(start, ttft, end, tokens, error=None):
    times = [start + ttft + (end - start - ttft) * i / tokens for i in range(tokens)]
    return RequestRecord("r", "p", start, times, [1] * tokens, list(range(tokens)), end, error)


def run(records, start=0.0, end=10.0):
    return PhaseRun(Phase("p", 1, len(records), 0, (1, 1)), start, end, records)


def test_a_phase_is_judged_by_its_tokens_over_its_wall_time():
    found = stats.phase_stats(run([record(0, 1, 5, 20), record(0, 3, 10, 30), record(0, 1, 2, 9, "HTTP 500")]))
    assert (found.requests, found.failed, found.tokens) == (3, 1, 50)
    assert found.tokens_per_s == 5.0
    assert found.ttft_s.p50 == 2.0
    assert found.latency_s.p95 == pytest.approx(9.75)


def test_a_phase_in_which_everything_failed_has_no_percentiles():
    found = stats.phase_stats(run([record(0, 1, 2, 3, "HTTP 500")]))
    assert (found.tokens_per_s, found.ttft_s.p50, found.latency_s.p95) == (0.0, None, None)


def test_pauses_between_phases_do_not_count():
    runs = [run([record(0, 1, 5, 20)], 0, 10), run([record(50, 1, 55, 30)], 50, 65)]
    assert stats.total_stats(runs).tokens_per_s == 2.0


spans = st.tuples(st.floats(0, 50), st.floats(0.01, 5), st.floats(0.01, 50), st.integers(1, 40))


@given(st.lists(spans, min_size=1, max_size=20), st.floats(0.1, 5))
def test_no_token_is_lost_in_the_rate_over_time(spans, bin_s):
    records = [record(start, ttft, start + ttft + rest, tokens) for start, ttft, rest, tokens in spans]
    rates = stats.rate_over_time(records, bin_s)
    assert sum(rate * bin_s for _, rate in rates) == pytest.approx(sum(len(r.token_ids) for r in records))


def test_the_load_is_the_most_requests_in_flight_of_each_bin():
    records = [record(0.1, 1, 2.5, 3), record(1.2, 0.1, 1.4, 1), record(3.6, 0.1, 3.9, 1)]
    assert stats.load_over_time(records, 1.0) == [(0, 1), (1, 2), (2, 1), (3, 1)]


@given(st.lists(spans, min_size=1, max_size=20))
def test_the_load_is_at_most_all_requests_and_has_no_gaps(spans):
    records = [record(start, ttft, start + ttft + rest, tokens) for start, ttft, rest, tokens in spans]
    load = stats.load_over_time(records, 1.0)
    assert max(level for _, level in load) <= len(records)
    assert [time for time, _ in load] == [float(index) for index in range(len(load))]


def test_nothing_served_gives_an_empty_rate():
    assert stats.rate_over_time([], 1.0) == []
