import json

import pytest

from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.simulator import step_times

NUMBERS = {
    "prefill_us_per_token": 20.0,
    "catch_up_start_us": 1000.0,
    "catch_up_us_per_token": 2.0,
    "kv_ns_per_token": 10.0,
    "draft_kv_ns_per_token": 3.0,
    "base_context": 100,
    "host_us": 0.0,
    "noise": 0.0,
}
ROWS = [[0, 1, 5.0, 0.0], [0, 64, 8.0, 0.0], [2, 1, 7.0, 2.0], [2, 64, 14.0, 3.0]]


def document(**more):
    return json.dumps(NUMBERS | {"rows": ROWS} | more)


def test_measured_points_are_kept_and_what_lies_between_is_interpolated():
    times = step_times.parse(document(), "t")
    assert times.gamma_max == 2
    assert times.seconds(2, 64) == pytest.approx(14e-3)
    assert times.draft[1, 1] == pytest.approx(1e-3)
    assert times.forward[0, 32] == pytest.approx(5e-3 + 3e-3 * 31 / 63)
    assert times.forward[0, 127] == pytest.approx(8e-3 + 3e-3)


def test_more_tokens_never_take_less_time():
    for name in step_times.SHIPPED:
        curve = step_times.load(name).by_tokens
        assert (curve[1:] >= curve[:-1]).all()
        assert curve[1] > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "JSON is required"),
        ("[]", "an object with rows is required"),
        (document(rows=[]), "rows: a list"),
        (document(rows=[*ROWS, [1, 2]]), r"rows, entry 5: \[gamma, batch, step_ms, draft_ms\] is required"),
        (document(rows=[*ROWS, [1, 0, 5, 0]]), "rows, entry 5: .*found"),
        (document(rows=[*ROWS, [1, 2, 5, 6]]), "draft_ms < step_ms"),
        (document(rows=ROWS[2:]), "step times at gamma 0 are required"),
        (document(noise=-1), "noise: a number of at least 0 is required, found -1"),
        (document(host_us=None), "host_us"),
    ],
)
def test_a_bad_table_is_refused_with_its_place(text, message):
    with pytest.raises(ConfigurationError, match=message):
        step_times.parse(text, "file.json")


def test_a_missing_table_is_refused_with_the_names_there_are():
    with pytest.raises(ConfigurationError, match="one of h200-7b, a100-13b, cpu-2core or a readable file"):
        step_times.load("b300")
