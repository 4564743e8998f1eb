"""`nightjar profile --kernels`: which tile sizes are tried, and what a GPU gets; its times are made up."""

import json
import pickle
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import typer
from triton.runtime.errors import OutOfResources
from typer.testing import CliRunner

from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.profile import draft_shape, tile_search, tile_timing
from nightjar_benchmarks.profile.command import profile
from nightjar_benchmarks.profile.draft_shape import DraftShape
from nightjar_benchmarks.profile.tile_search import Case, Part, cases, choose
from nightjar_kernels import tiles
from nightjar_kernels.tiles import DEFAULT_GPU, AttentionTile, HeadTile, RowTile, ShareTile, Tiles

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
}
SHAPE = DraftShape(**CONFIG)
# Everything a draft has, as small as it may be.
TINY = DraftShape(
    hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2, head_dim=32, vocab_size=600
)
PRESENT = Tiles(
    source="made up",
    linear=(
        RowTile(tokens=2, inputs=1024, elements=32768, rows=8, programs=132),
        ShareTile(inputs=1024, outputs=16, share_inputs=256, warps=4),
        RowTile(tokens=4, elements=32768, rows=8, programs=132),
        ShareTile(outputs=16, share_inputs=256, warps=4),
    ),
    head=HeadTile(tokens=128, inputs=64, stages=4),
    attention=AttentionTile(tokens=64, part=128),
)


@pytest.fixture
def written(tmp_path):
    def write(found):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(found))
        return path

    return write


def test_a_drafts_matrices_are_those_of_its_config(written):
    path = written(CONFIG)
    for given in (path, path.parent):
        found = {one.what: (one.outputs, one.inputs, one.gated) for one in draft_shape.read(given).matrices()}
        assert found == {
            "qkv": (1152, 896, False),
            "out": (896, 896, False),
            "gate_up": (4864, 896, True),
            "down": (896, 4864, False),
        }
    # Qwen3-0.6B's heads are larger than a share of the hidden size.
    shape = DraftShape(**CONFIG | {"hidden_size": 1024, "num_attention_heads": 16, "head_dim": 128})
    assert [(one.outputs, one.inputs) for one in shape.matrices()[:2]] == [(2560, 1024), (1024, 2048)]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"hidden_size": 896}, "config.json: vocab_size: required, found nothing"),
        (CONFIG | {"head_dim": 0}, "config.json: head_dim: Input should be greater than or equal to 1, found 0"),
        (CONFIG | {"hidden_size": "896"}, "config.json: hidden_size: Input should be a valid integer, found '896'"),
    ],
)
def test_a_config_that_says_too_little_is_refused_with_the_field(found, message, written):
    with pytest.raises(ConfigurationError, match=message):
        draft_shape.read(written(found))


def test_what_there_is_now_is_tried_first_and_nothing_twice():
    found = cases(SHAPE, 132, PRESENT)
    for case in found:
        assert len(set(case.candidates)) == len(case.candidates) > 1
    now = {case.what: case.candidates[0] for case in found}
    assert isinstance(now["linear, 896 inputs, 2 tokens"], RowTile)
    assert isinstance(now["linear, 896 inputs, 4 tokens"], ShareTile)
    assert isinstance(now["linear, 4864 inputs, 4 tokens"], RowTile)
    assert (now["head"], now["attention"]) == (PRESENT.head, PRESENT.attention)
    # Each matrix of a layer at each number of tokens.
    linear = [part for case in found for part in case.parts if case.what.startswith("linear")]
    assert sorted(linear, key=str) == sorted(
        (Part(what, tokens) for what in ("qkv", "out", "gate_up", "down") for tokens in (1, 2, 4, 8, 16, 32)), key=str
    )


@pytest.mark.parametrize("shape", [SHAPE, TINY, DraftShape(**CONFIG | {"hidden_size": 20480, "head_dim": 64})])
def test_whole_rows_are_tried_only_where_they_fit(shape):
    for case in cases(shape, 132, PRESENT):
        for tile in case.candidates:
            if isinstance(tile, RowTile):
                fitting = {part.what for part in case.parts}
                assert all(
                    tile.rows_at_once(one.inputs, one.outputs, gated=one.gated)
                    for one in shape.matrices()
                    if one.what in fitting
                )


@pytest.mark.parametrize("shape", [SHAPE, TINY])
def test_where_nothing_is_faster_everything_stays_as_it_is(shape):
    found = choose({case: [1.0] * len(case.candidates) for case in cases(shape, 132, PRESENT)}, shape, "made up")
    for matrix in shape.matrices():
        for tokens in range(1, 33):
            kept, was = (one.of_matrix(tokens, matrix.inputs, gated=matrix.gated) for one in (found, PRESENT))
            if isinstance(was, RowTile):
                given = (matrix.inputs, matrix.outputs)
                assert kept.rows_at_once(*given, gated=matrix.gated) == was.rows_at_once(*given, gated=matrix.gated)
            elif tokens in tile_search.TOKENS:
                bounds = {"tokens": None, "inputs": None}
                assert kept.model_copy(update=bounds) == was.model_copy(update=bounds)
    assert (found.head, found.attention) == (PRESENT.head, PRESENT.attention)


def test_each_case_gets_its_fastest():
    """Times by a rule that prefers other tiles for each length of rows and number of tokens."""

    def us(case, tile):
        if isinstance(tile, ShareTile):
            wanted = 16 if "4864" in case.what and "8 tokens" in case.what else 8
            return 5.0 + abs(tile.warps - wanted) + (tile.outputs != 16)
        if isinstance(tile, RowTile):
            return 4.0 + tile.rows if "1 token" in case.what else 90.0
        return {3: 1.0}.get(tile.stages, 2.0) if isinstance(tile, HeadTile) else abs(tile.part - 256) + tile.tokens

    planned = cases(SHAPE, 132, PRESENT)
    found = choose({case: [us(case, tile) for tile in case.candidates] for case in planned}, SHAPE, "made up")
    assert found.of_matrix(1, 896).rows == 2
    assert found.of_matrix(2, 896).warps == found.of_matrix(32, 1024).warps == 8
    assert found.of_matrix(5, 4864).warps == found.of_matrix(8, 4864).warps == 16
    assert found.of_matrix(4, 4864).warps == found.of_matrix(9, 4864).warps == 8
    # As the longest that was measured.
    assert found.of_matrix(8, 20000).warps == 16
    assert found.head.stages == 3
    assert (found.attention.tokens, found.attention.part) == (32, 256)
    # Neighbours that are the same are one.
    assert [(one.tokens, one.inputs) for one in found.linear] == [
        *((1, 1024), (None, 1024)),
        *((1, None), (4, None), (8, None), (None, None)),
    ]
    assert len(found.measured_us) == len(planned)
    assert tiles.parse(tiles.dump({"Some GPU": found}), "") == {"Some GPU": found}


TWO = Case("head", (Part("head", 1),), (PRESENT.head, PRESENT.head.model_copy(update={"stages": 3})))


@pytest.mark.parametrize(
    ("times", "stages"), [([1.0, 0.99], 4), ([1.0, 0.9], 3), ([None, 5.0], 3), ([5.0, None], 4), ([1.0, 1.0], 4)]
)
def test_what_is_hardly_faster_changes_nothing_and_what_does_not_run_is_left_out(times, stages):
    assert tile_search._best(TWO, times, 0.02).stages == stages


def test_a_gpu_on_which_nothing_runs_is_refused():
    with pytest.raises(ConfigurationError, match="head: tile sizes that run on this GPU are required, found none"):
        tile_search._best(TWO, [None, None], 0.02)


@pytest.mark.parametrize("case", cases(TINY, 132, PRESENT), ids=lambda case: case.what)
def test_every_candidate_can_be_launched(case):
    """By their specifications, on a CPU; in a process of another's making."""
    kernels = pickle.loads(pickle.dumps(tile_timing.Kernels(TINY, "cpu", 132)))  # noqa: S301 - our own
    for tile in case.candidates:
        for part, _ in tile_timing.jobs_of(case, tile):
            for run in kernels.runs(part, tile, copies=2):
                run()


def test_kernels_are_compiled_by_processes_that_begin_anew():
    """On a CPU there is nothing to compile, and nothing that does not run."""
    case = Case("head", (Part("head", 1),), (PRESENT.head,))
    assert tile_timing.compile_all(tile_timing.Kernels(TINY, "cpu", 132), tile_timing.jobs_of(case, PRESENT.head)) == {}


def test_weights_are_more_than_a_device_keeps_of_what_it_has_read():
    kernels = tile_timing.Kernels(TINY, "cpu", 132)
    assert len(kernels.runs(Part("down", 1), PRESENT.linear[-1])) == tile_timing.MOST_COPIES
    kernels = tile_timing.Kernels(DraftShape(**CONFIG | {"vocab_size": 50_000}), "cpu", 132)
    assert len(kernels.runs(Part("head", 1), PRESENT.head)) == 3


def test_a_kernel_that_does_not_fit_into_the_device_is_refused_with_the_reason(monkeypatch):
    def refuse(*_):
        raise OutOfResources(300, 200, "shared memory")

    monkeypatch.setattr(tile_timing, "best_of_head", refuse)
    assert "shared memory" in tile_timing.Kernels(TINY, "cpu", 132).refusal((Part("head", 1), PRESENT.head))


def test_a_candidates_time_is_that_of_one_launch_of_each_part(monkeypatch):
    """A graph takes as long as its launches, which are numbers of µs here, and is disturbed once."""
    fast, slow, refused = (ShareTile(outputs=outputs, share_inputs=16, warps=1) for outputs in (16, 32, 64))
    case = Case("made up", (Part("down", 2), Part("out", 2)), (fast, slow, refused))

    class Launches:
        def runs(self, part, tile):
            us = (10 if tile is slow else 1) + (part.what == "out")
            return [us] * (3 if part.what == "out" else 5)

    monkeypatch.setattr(tile_timing, "_captured", lambda launches: SimpleNamespace(replay=sum(launches)))
    monkeypatch.setattr(tile_timing, "alternating_us", lambda _, works: [[us, us, 90_000] for us in works])
    dropped = {(Part("out", 8), refused)}
    assert tile_timing.time_case(Launches(), dropped, case) == [3.0, 21.0, None]


@pytest.fixture
def run(written, tmp_path):
    """`run(*arguments)`: the command with the draft above, and what it writes."""
    app = typer.Typer()
    app.command()(profile)
    out = tmp_path / "tables" / "tiles.json"

    def invoke(*arguments, draft=CONFIG):
        given = ["--kernels", str(written(draft)), "--out", str(out), *arguments]
        return CliRunner().invoke(app, given), out

    return invoke


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of our own making, on which shares of eight warps are fast."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some GPU")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: SimpleNamespace(multi_processor_count=80))
    monkeypatch.setattr(tile_timing, "compile_all", lambda _, jobs: {jobs[0]: "too large"})

    def time_case(_, __, case):
        return [1.0 if getattr(tile, "warps", 4) == 8 else 2.0 for tile in case.candidates]

    monkeypatch.setattr(tile_timing, "time_case", time_case)


def test_a_table_is_written_that_an_engine_reads_and_says_what_was_measured(run, gpu):
    found, out = run()
    assert found.exit_code == 0, found.output
    table = tiles.read(out)
    assert table["Some GPU"].of_matrix(8, 4864).warps == 8
    assert "hidden_size=896" in table["Some GPU"].source
    assert "linear, 4864 inputs, 8 tokens: 1.00 µs" in found.output
    assert "as it is 2.00 µs" in found.output
    assert "does not run here: qkv, 1 tokens, kernel rows" in found.output
    assert "draftTiles" in found.output


def test_a_file_that_was_not_written_is_not_there(run):
    if torch.cuda.is_available():
        pytest.skip("needs a machine without a CUDA device")
    _, out = run()
    assert not out.exists()


def test_a_table_of_another_gpu_is_extended_and_its_own_entry_replaced(run, gpu):
    _, out = run()
    mine = PRESENT.model_copy(update={"source": "mine"})
    out.write_text(tiles.dump({DEFAULT_GPU: mine, "Some GPU": mine}))
    found, _ = run()
    assert found.exit_code == 0, found.output
    table = tiles.read(out)
    assert table[DEFAULT_GPU] == mine
    assert table["Some GPU"].source != "mine"


def test_without_a_gpu_the_command_says_so(run):
    if torch.cuda.is_available():
        pytest.skip("needs a machine without a CUDA device")
    found, _ = run()
    assert found.exit_code == 1
    assert "--kernels: a CUDA device is required to time kernels on, found none" in found.output


@pytest.mark.parametrize(
    ("arguments", "draft", "message"),
    [
        (["--reports", "steps.jsonl"], CONFIG, "no --engine-socket, --reports or --record beside it is required"),
        ([], {"hidden_size": 8}, "vocab_size: required, found nothing"),
        (["--kernels", "nowhere.json"], CONFIG, "nowhere.json: a readable config.json of a draft model is required"),
        (["--out", "/dev/null/tiles.json"], CONFIG, "--out: a file that can be written is required, found /dev/null"),
        (["--out", __file__], CONFIG, "--out: a new file or a table of tile sizes is required"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_it_is_tried(arguments, draft, message, run):
    found, _ = run(*arguments, draft=draft)
    assert found.exit_code == 1, found.output
    assert message in " ".join(found.output.split())


def test_the_command_takes_no_library_that_the_engines_image_lacks(written):
    """That image has vLLM and what every component shares, and none of the extras."""
    code = """
import sys
for name in ("tenacity", "watchfiles", "aiohttp", "kopf", "kubernetes", "plotly", "selenium", "safetensors"):
    sys.modules[name] = None
from nightjar_api.cli import build
build("profile")(["profile", "--kernels", sys.argv[1], "--out", sys.argv[2]])
"""
    path = written(CONFIG)
    given = [sys.executable, "-c", code, str(path), str(path.parent / "tiles.json")]
    found = subprocess.run(given, capture_output=True, text=True, timeout=300, check=False)
    assert "Traceback" not in found.stderr
    assert found.returncode == 0 if torch.cuda.is_available() else "a CUDA device is required" in found.stderr
