"""The commands as typer runs them, on small work."""

import io
import json
import re
from dataclasses import asdict, dataclass, replace

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from nightjar_benchmarks.compare import suites
from nightjar_benchmarks.compare.chance import chance
from nightjar_benchmarks.compare.command import compare, score_tables
from nightjar_benchmarks.compare.contenders import ABLATION, COMPARED, CONTENDERS, space
from nightjar_benchmarks.compare.page import page
from nightjar_benchmarks.compare.regret import exponent
from nightjar_benchmarks.compare.runs import run_all, tasks
from nightjar_benchmarks.compare.scores import Scores, figures, worth
from nightjar_benchmarks.records import Figure
from nightjar_benchmarks.simulator import oracle
from nightjar_benchmarks.simulator.command import simulate


def invoke(command, *arguments):
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("time,prompt_tokens,output_tokens\n" + "".join(f"{i / 10},50,30\n" for i in range(40)))
    return path


def test_a_trace_is_simulated_and_plotted(trace, tmp_path):
    result = invoke(simulate, "--trace", str(trace), "--json", "--policy", "nightjar", "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["nightjar"]["finished"] == 40
    assert "plotly" in (tmp_path / "out" / "simulate.html").read_text().lower()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trace", "missing.csv"], "a readable trace is required"),
        (["--scenario", "moon"], "one of 7b-alpaca/rates"),
        (["--policy", "luck"], "--policy: one of nightjar"),
        (["--times", "missing.json"], "a readable file of step times is required"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_a_reason(arguments, message, tmp_path):
    result = invoke(simulate, *arguments, "--out", str(tmp_path))
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())


def test_an_unknown_suite_is_refused():
    result = invoke(compare, "--suite", "none")
    assert result.exit_code == 2
    assert "one of paper, ablation is required" in " ".join(result.output.replace("│", " ").split())


def test_the_paper_suite_has_the_papers_cells_and_all_policies():
    names = set(suites.paper())
    assert {f"{cell}/{load}" for cell in suites.PAPER_CELLS for load in ("rates", "full")} < names
    assert {"nightjar", "ada-bingreedy", "off", "static-table", "dsd", "linucb", "linear-ts", "tetris"} < set(COMPARED)


def test_scores_and_figures_follow_from_the_runs():
    wanted = ("13b-specbench/rates", "13b-specbench/full", "drift/acceptance-halves")
    todo = [task for task in tasks("paper", COMPARED, 1) if task.scenario in wanted]
    scores = Scores(suites.paper(), run_all(todo, workers=1))
    found = figures(scores)
    assert set(found["gain_over_best_single"].raw["by cell"]) == {"13b-specbench/rates"}
    room = found["gain_over_best_single"].raw
    assert set(room["the oracle's"]) == {"13b-specbench/rates"}
    assert set(room["the oracle's elsewhere"]) == {"13b-specbench/full", "drift/acceptance-halves"}
    assert 0 <= found["win_share"].value <= 1
    assert found["vs_static_table_drift"].value > 1.05
    assert found["worst_cell_ratio"].value > 0.95


@dataclass(frozen=True)
class Run:
    """What was simulated, as far as scores go."""

    points: float

    def score(self, metric, *, warm):
        assert metric in ("throughput", "latency", "latency_by_phase")
        assert not warm
        return self.points


@pytest.mark.parametrize(("suite", "policies"), [("paper", COMPARED), ("ablation", ABLATION)])
def test_eighty_columns_show_the_scores_of_every_scenario(suite, policies):
    todo = tasks(suite, policies, 1)
    points = {policy: 1000 - 5 * number for number, policy in enumerate(policies)}
    scores = Scores(suites.SUITES[suite](), [(task, Run(points[task.policy])) for task in todo])
    console = Console(width=80, file=io.StringIO())
    console.print(*score_tables(scores))
    shown = console.file.getvalue()
    assert "…" not in shown
    cells = [line.strip("│ ").split("│") for line in shown.splitlines() if line.startswith("│")]
    rows = [[cell.strip() for cell in row] for row in cells]
    for policy in set(policies) - {"oracle"}:
        found = [score for row in rows if row[0] == policy for score in row[1:]]
        assert found == [f"{points[policy] / 10:.0f}"] * len(scores.scenarios)
    assert [name for name in scores.scenarios if not re.search(rf"^(.* )?\d {name}( |$)", shown, re.MULTILINE)] == []


def test_chance_is_what_the_noise_of_steps_alone_does_to_a_score():
    one = suites.paper()["13b-specbench/rates"]
    quiet = replace(one, times=replace(one.times, noise=0.0))
    found = chance({"noisy": one, "quiet": quiet}).raw
    assert found["quiet"] == 0
    assert 0 < found["noisy"] < 0.01


def test_the_ablation_says_what_each_ingredient_is_worth():
    todo = [task for task in tasks("ablation", ABLATION, 1) if task.scenario == "drift/draft-slows"]
    found = worth(Scores(suites.ablation(), run_all(todo, workers=1)))
    assert set(found) == {name.replace("-", "_") for name in ABLATION} - {"oracle"}
    assert 0.9 < found["nightjar"].value < 1.1
    assert found["without_guard"].raw.keys() == {"drift/draft-slows"}


def test_the_oracle_is_at_least_as_good_as_every_single_length_where_nothing_is_short():
    one = suites.paper()["13b-sharegpt/rates"]
    best = CONTENDERS["oracle"](one, 0).score(one.metric)
    for name in ("off", "fixed-1", "fixed-2", "fixed-3", "fixed-5"):
        assert CONTENDERS[name](one, 0).score(one.metric) <= 1.01 * best


def test_the_oracle_chooses_among_what_the_engine_has():
    one = suites.paper()["7b-alpaca/rates"]
    chosen = oracle.table(one)
    assert set(chosen[0].tolist()) <= set(space(one).gammas)
    assert chosen[0, 1] > 0
    assert chosen[0, 256] == 0


def test_regret_grows_slower_than_visits_and_faster_with_the_coin_that_explores_more():
    paper, code = exponent("1/b", 4, 12), exponent("1/sqrt(b)", 4, 12)
    assert 0.4 < paper.slope < code.slope < 0.95
    assert paper.low <= paper.slope <= paper.high
    assert paper.regret[-1] < code.regret[-1]
    assert paper.switches_per_bin <= 1


@pytest.mark.parametrize("seed", range(2))
def test_in_a_crowd_of_long_steps_little_is_spent_on_what_cannot_win(seed):
    one = suites.paper()["cpu/surge"]
    ours, off = (CONTENDERS[name](one, seed) for name in ("nightjar", "off"))
    for crowd in (1, 3):
        assert ours.phases[crowd].throughput > 0.95 * off.phases[crowd].throughput
    assert ours.score(one.metric) > 1.4 * off.score(one.metric)


def test_the_page_plots_scores_and_regret():
    todo = [task for task in tasks("paper", ("oracle", "nightjar", "off"), 1) if task.scenario == "cpu/surge"]
    scores = Scores(suites.paper(), run_all(todo, workers=1))
    exponents = [asdict(exponent(coin, 2, 10)) for coin in ("1/b", "1/sqrt(b)")]
    shown = page(scores, {"regret_exponent": Figure(0.6, "exponent", exponents)})
    assert "coin 1/sqrt(b): slope" in shown.replace("\\u002f", "/")
    assert re.search(r"regret_exponent</td>\s*<td>0\.6</td>", shown)
    # Numbers in cells, so that nothing depends on telling fourteen colours apart.
    best = scores.mean("cpu/surge", "oracle")
    ours, off = (100 * scores.mean("cpu/surge", policy) / best for policy in ("nightjar", "off"))
    assert f'"text":[["{ours:.0f}"],["{off:.0f}"]]' in shown
