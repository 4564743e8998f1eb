"""Which tile sizes an engine's GPU has, and what is said of them."""

import pytest

from nightjar_engine_patch.draft_tiles import tiles_of
from nightjar_engine_patch.errors import RefusalError
from nightjar_engine_patch.settings import EngineSettings
from nightjar_kernels import tiles
from nightjar_kernels.tiles import DEFAULT, DEFAULT_GPU, SHIPPED

MINE = DEFAULT.model_copy(update={"source": "mine"})


@pytest.fixture
def written(tmp_path):
    """`written({"Some GPU": tiles})`: settings that name such a file, and its path."""

    def write(table):
        path = tmp_path / "tiles.json"
        path.write_text(tiles.dump(table))
        return EngineSettings("e.sock", draft_tiles=str(path)), path

    return write


@pytest.mark.parametrize("gpu", sorted(SHIPPED))
def test_a_gpu_of_the_shipped_table_has_its_own(gpu):
    found = tiles_of(gpu, EngineSettings("e.sock"))
    assert (found.tiles, found.told) == (SHIPPED[gpu], f"{gpu}'s, shipped")


def test_a_file_adds_gpus_and_replaces_those_that_are_shipped(written):
    settings, path = written({"Some GPU": MINE})
    assert tiles_of("Some GPU", settings).told == f"Some GPU's, from {path}"
    assert tiles_of("Some GPU", settings).tiles == MINE
    assert tiles_of(DEFAULT_GPU, settings).tiles == DEFAULT
    settings, path = written({DEFAULT_GPU: MINE})
    assert tiles_of(DEFAULT_GPU, settings).told == f"{DEFAULT_GPU}'s, from {path}"
    assert tiles_of(DEFAULT_GPU, settings).tiles == MINE


def test_a_gpu_that_is_nowhere_has_an_h200s_and_that_is_said(written):
    found = tiles_of("Some GPU", EngineSettings("e.sock"))
    assert found.tiles == SHIPPED["NVIDIA H200"]
    assert found.told == ("NVIDIA H200's, shipped, for want of Some GPU's: `nightjar profile --kernels` measures them")
    settings, path = written({"NVIDIA H200": MINE})
    assert tiles_of("Some GPU", settings).tiles == MINE
    assert tiles_of("Some GPU", settings).told.startswith(f"NVIDIA H200's, from {path}, for want of Some GPU's")


def test_a_wrong_file_is_refused_with_the_setting_the_path_the_field_and_the_reason(tmp_path):
    path = tmp_path / "tiles.json"
    path.write_text('{"Some GPU": {"source": 3}}')
    with pytest.raises(RefusalError) as raised:
        tiles_of(DEFAULT_GPU, EngineSettings("e.sock", draft_tiles=str(path)))
    said = str(raised.value)
    assert said.startswith(f"additional_config.nightjar.draft_tiles: {path}: Some GPU.source: Input should be a valid")
    assert f"{path}: Some GPU.linear: required, found nothing" in said
