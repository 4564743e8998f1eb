import json
import subprocess
from datetime import UTC, datetime

import pytest

from nightjar_benchmarks.figures import figures, rows, source, topics
from nightjar_benchmarks.goals import GOALS
from nightjar_benchmarks.records import RESULTS, Figure, Record, commits_behind, git, measured, read, write

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "user.email", "someone@example.org")
    git(tmp_path, "config", "user.name", "Someone")
    commit(tmp_path, "code.py", "1")
    return tmp_path


def commit(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    git(root, "add", name)
    git(root, "commit", "--quiet", "-m", "change")
    return git(root, "rev-parse", "HEAD")


def record(root, command="python -m bench", **values):
    found = {name: Figure(value, "×", raw=[value]) for name, value in values.items()}
    return write(root, "loop", measured(root, command, found, NOW))


def test_a_record_says_what_was_measured_where_and_when(repository):
    path = record(repository, demo_vs_no_draft=1.25)
    found = json.loads(path.read_text())
    assert set(found) == {"command", "commit", "date", "host", "versions", "figures"}
    assert found["figures"] == {"demo_vs_no_draft": {"value": 1.25, "unit": "×", "raw": [1.25]}}
    assert found["commit"] == git(repository, "rev-parse", "HEAD")
    assert found["date"] == "2030-01-02T03:04:05+00:00"
    assert set(found["host"]) == {"cpu", "cores", "memory_gib", "gpus"}
    assert read(repository, "loop").figures["demo_vs_no_draft"].value == 1.25


def test_figures_of_the_same_commit_are_kept_and_those_of_another_dropped(repository):
    record(repository, demo_vs_no_draft=1.25)
    record(repository, demo_vs_fixed_3=1.5)
    assert set(read(repository, "loop").figures) == {"demo_vs_no_draft", "demo_vs_fixed_3"}
    commit(repository, "code.py", "2")
    record(repository, demo_vs_fixed_3=1.6)
    assert set(read(repository, "loop").figures) == {"demo_vs_fixed_3"}


def test_a_record_names_every_command_that_made_a_part_of_it_once(repository):
    for command in ("bench one", "bench two", "bench one"):
        record(repository, command, demo_vs_no_draft=1.25)
    assert read(repository, "loop").command == "bench one; bench two"
    commit(repository, "code.py", "2")
    record(repository, "bench two", demo_vs_fixed_3=1.6)
    assert read(repository, "loop").command == "bench two"


def test_a_checkout_with_changes_records_nothing(repository):
    (repository / "code.py").write_text("changed")
    with pytest.raises(ValueError, match=r"(?s)commit first, or measure in a fresh clone.*code\.py"):
        record(repository, demo_vs_no_draft=1.25)
    assert read(repository, "loop") is None


def test_results_themselves_are_no_change_of_the_code(repository):
    record(repository, demo_vs_no_draft=1.25)
    measured_at = read(repository, "loop").commit
    commit(repository, str(RESULTS / "loop.json"), (repository / RESULTS / "loop.json").read_text())
    assert commits_behind(repository, measured_at) == 0
    commit(repository, "code.py", "2")
    assert commits_behind(repository, measured_at) == 1


def test_a_commit_outside_the_history_is_told_from_an_old_one(repository):
    first = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "--quiet", "-b", "aside")
    aside = commit(repository, "code.py", "aside")
    git(repository, "checkout", "--quiet", first)
    commit(repository, "code.py", "main")
    assert commits_behind(repository, first) == 1
    assert commits_behind(repository, aside) is None
    assert commits_behind(repository, "0" * 40) is None


def test_a_malformed_record_is_refused_by_name(repository):
    path = repository / RESULTS / "loop.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"figures": {"a": {"valeu": 1}}}')
    with pytest.raises(ValueError, match=r"loop\.json: a record of figures is required"):
        read(repository, "loop")


def made(**values):
    return Record("cmd", "c" * 40, "2030-01-02", {}, {}, {name: Figure(value, "u") for name, value in values.items()})


def test_every_goal_is_met_missed_or_not_recorded():
    verdicts = {
        name: verdict
        for name, _, _, _, verdict in rows(
            "loop", made(demo_vs_no_draft=1.0, step_cost_p99_us=201.0, sidecar_kill_failed_requests=0, extra=3.0)
        )
    }
    assert verdicts["demo_vs_no_draft"] == "met"
    assert verdicts["step_cost_p99_us"] == "missed"
    assert verdicts["sidecar_kill_failed_requests"] == "met"
    assert verdicts["demo_vs_fixed_3"] == "not recorded"
    assert verdicts["extra"] == "recorded"


def test_a_figure_wanted_whatever_it_is_has_no_goal_to_miss():
    found = {row[0]: row for row in rows("planner", made(regret_exponent=0.8))}
    assert found["regret_exponent"] == ("regret_exponent", "0.8", "", "u", "recorded")


def test_the_source_says_how_old_a_record_is():
    assert "not recorded" in source(None, None)
    assert "not part of this history" in source(made(), None)
    assert "the code as it is" in source(made(), 0)
    assert "older than the code by 2 commits" in source(made(), 2)


def test_goals_are_named_once():
    names = [(goal.topic, goal.name) for goal in GOALS]
    assert len(set(names)) == len(names)


def test_every_topic_is_listed_recorded_or_not(repository):
    record(repository, demo_vs_no_draft=1.25)
    write(repository, "aside", measured(repository, "cmd", {"x": Figure(1, "s")}, NOW))
    assert topics(repository)[0] == "loop"
    assert topics(repository)[-1] == "aside"
    assert set(topics(repository)) == {goal.topic for goal in GOALS} | {"aside"}


def test_the_command_prints_every_goal_and_goes_on_past_a_malformed_record(repository, capsys):
    record(repository, demo_vs_no_draft=1.25)
    (repository / RESULTS / "planner.json").write_text("{")
    figures(repository)
    output = capsys.readouterr().out
    assert "1.25" in output
    assert "planner.json: a record of figures is required" in output
    for goal in GOALS:
        assert goal.name in output or goal.topic == "planner"


def test_git_failures_are_not_swallowed(tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        git(tmp_path / "nowhere", "status")
