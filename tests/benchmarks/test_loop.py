import pytest

from nightjar_api.engine.v1.engine_pb2 import StepReport
from nightjar_benchmarks.loop import demo, gamma0, steps
from nightjar_benchmarks.loop.service import service
from nightjar_benchmarks.pairs import TINY, Pair


def test_each_gamma0_run_is_compared_with_the_plain_runs_around_it():
    # The machine slows down by half in the middle; B is 0.9 of A throughout.
    assert gamma0.ratio([(100, 90), (100, 67.5), (50, 45)]) == pytest.approx(0.9)


def test_one_outlier_does_not_decide_gamma0():
    assert gamma0.ratio([(100, 97), (100, 97), (100, 10), (100, 97)]) == pytest.approx(0.97)


def step(gamma, *, verified=0, accepted=0, batch=4, overhead_us=20.0, prefill=0):
    return StepReport(
        gamma_drafted=gamma,
        decode_batch=batch,
        verified_tokens=verified,
        accepted_tokens=accepted,
        prefill_tokens=prefill,
        overhead_ns=round(overhead_us * 1000),
    )


def test_acceptance_is_taken_before_and_after_gamma_was_0():
    reports = [
        *[step(3, verified=12, accepted=9)] * 100,
        *[step(0)] * 50,
        *[step(3, verified=12, accepted=6)] * 100,
    ]
    assert steps.acceptance_around_return(reports) == (0.75, 0.5)


def test_steps_without_decoding_are_no_return():
    reports = [step(0, batch=0), *[step(3, verified=12, accepted=9)] * 100, step(0), *[step(3, verified=12)] * 100]
    assert steps.acceptance_around_return(reports) == (0.75, 0.0)


@pytest.mark.parametrize("reports", [[], [step(3, verified=12, accepted=9)] * 200])
def test_reports_without_a_return_are_refused(reports):
    with pytest.raises(ValueError, match="on each side of γ = 0 are required, found 0"):
        steps.acceptance_around_return(reports)


def test_overhead_is_that_of_full_steps_of_one_length():
    full = [step(3, batch=64, overhead_us=cost) for cost in range(1, 102)]
    others = [step(0, batch=64, overhead_us=900), step(3, overhead_us=900), step(3, batch=64, prefill=5)]
    assert steps.overhead_us([*full, *others], 3, 64) == (51.0, 100.0, 101)


def test_too_few_full_steps_are_refused():
    with pytest.raises(ValueError, match="at least 100 steps of 64 requests at γ = 3 are required, found 99"):
        steps.overhead_us([step(3, batch=64)] * 99, 3, 64)


def phases(**seconds):
    """Each phase gives 100 tokens."""
    return [
        {"name": name, "tokens": 100 * count, "wall_s": took}
        for name, count, took in [
            *((name, 1, took) for name, took in seconds.items()),
            ("total", 2, sum(seconds.values())),
        ]
    ]


def report(seconds):
    """Of a run in which Nightjar's surge took so long, the best other's 1 s."""
    return {
        "commit": "abc",
        "quick": False,
        "failed": 0,
        "lossless": True,
        "requests": 9,
        "gamma_switches": 4,
        "wall_s": 300.0,
        "worst_phase_ratio": min(1.0, 1 / seconds),
        "ratios": {},
        "arms": {
            "no-draft": {"phases": phases(quiet=2.0, surge=1.0)},
            "fixed-3": {"phases": phases(quiet=1.0, surge=3.0)},
            "nightjar": {"phases": phases(quiet=1.0, surge=seconds)},
        },
    }


def test_the_demos_figures_come_from_its_report():
    found = demo.figures({"a.json": report(1.25)}, "abc")
    assert {name: figure.value for name, figure in found.items()} == pytest.approx(
        {"demo_vs_no_draft": 3 / 2.25, "demo_vs_fixed_3": 4 / 2.25, "demo_worst_phase_ratio": 0.8}
    )


def test_several_runs_of_the_demo_count_as_one():
    found = demo.figures({"a.json": report(1.5), "b.json": report(0.9)}, "abc")["demo_worst_phase_ratio"]
    assert found.value == pytest.approx(2 / 2.4)
    assert found.raw["by_run"] == pytest.approx([1 / 1.5, 1.0])


@pytest.mark.parametrize(
    "change", [{"commit": None}, {"commit": "def"}, {"quick": True}, {"failed": 1}, {"lossless": False}]
)
def test_a_report_of_another_state_or_run_gives_no_figures(change):
    with pytest.raises(ValueError, match=f"b.json: {next(iter(change))} .* is required"):
        demo.figures({"a.json": report(1.0), "b.json": report(1.0) | change}, "abc")


def test_engines_with_and_without_a_draft_are_otherwise_the_same(tmp_path):
    pair = Pair(tmp_path, TINY, (1.0,), 0)
    plain, off = service("plain", pair, "float32", 16, None).spec, service("off", pair, "float32", 16, "off").spec
    assert plain.draft is None
    assert off.planner.policy == "off"
    assert (plain.target, plain.engine.args) == (off.target, off.engine.args)
