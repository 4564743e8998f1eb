from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.simulator import traces

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.1805900,396,109\n"
)
BURST = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n118,GPT-4,417,276,693,API log\n"
)
MOONCAKE = (
    '{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46]}\n'
    '{"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [46]}\n'
)
PLAIN = "time,prompt_tokens,output_tokens\n3.5,10,20\n1.5,30,40\n"


@pytest.fixture
def trace(tmp_path):
    def write(text):
        path = tmp_path / "trace"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (AZURE, [(0, 374, 44), (3.5, 396, 109)]),
        (BURST, [(0, 472, 18), (113, 417, 276)]),
        (MOONCAKE, [(0, 6955, 52), (3.053, 6472, 26)]),
        (PLAIN, [(0, 30, 40), (2, 10, 20)]),
        ("\ufeff" + PLAIN, [(0, 30, 40), (2, 10, 20)]),
        (PLAIN.replace("\n", "\r\n"), [(0, 30, 40), (2, 10, 20)]),
    ],
)
def test_known_formats_are_told_apart_by_their_header(trace, text, expected):
    found = traces.read(trace(text))
    assert [request[1:] for request in found] == [request[1:] for request in expected]
    assert [request.time for request in found] == pytest.approx([time for time, _, _ in expected])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a trace with a header is required, found an empty file"),
        ("a,b,c\n1,2,3\n", r"line 1: one of these headers is required: .*found 'a,b,c"),
        (PLAIN + "5,7\n", r"line 4: 3 columns \(plain\) are required, found 2"),
        (
            PLAIN + "5,x,7\n",
            r"line 4: a time and two whole numbers \(time, prompt_tokens, output_tokens\) .*found 5, x, 7",
        ),
        (PLAIN + "5,0,7\n", "line 4: a finite time, at least 1 prompt token"),
        (PLAIN + "nan,1,7\n", "line 4: a finite time"),
        (AZURE + "yesterday,1,2\n", "line 4: a time and two whole numbers"),
        (MOONCAKE + "{\n", "line 3: a JSON object is required"),
        (MOONCAKE + '{"timestamp": 1}\n', "line 3: an object with timestamp, input_length, output_length is required"),
        ("time,prompt_tokens,output_tokens\n1,5,0\n", "at least one request that puts out tokens is required"),
    ],
)
def test_a_bad_trace_is_refused_with_line_and_reason(trace, text, message):
    with pytest.raises(ConfigurationError, match=message):
        traces.read(trace(text))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="a readable trace is required"):
        traces.read(tmp_path / "none")


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 9999), st.integers(1, 9999)), min_size=1, max_size=50))
def test_whatever_was_written_is_read_in_order_of_time(tmp_path_factory, requests):
    path = tmp_path_factory.mktemp("traces") / "plain.csv"
    lines = [f"{time!r},{prompt},{output}" for time, prompt, output in requests]
    path.write_text("time,prompt_tokens,output_tokens\n" + "\n".join(lines), encoding="utf-8")
    found = traces.read(path)
    assert sorted(r[1:] for r in found) == sorted(r[1:] for r in requests)
    assert all(a.time <= b.time for a, b in pairwise(found))
    chunks = list(traces.chunks(found, speed=2.0))
    assert sum(len(chunk.arrival) for chunk in chunks) == len(requests)
