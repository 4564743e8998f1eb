"""The table of tile sizes: what is looked up, what a file adds, and what is refused."""

import json

import pytest

from nightjar_kernels import tiles
from nightjar_kernels.tiles import DEFAULT, AttentionTile, HeadTile, RowTile, ShareTile, Tiles, TilesError

TILES = Tiles(
    source="made up",
    linear=(
        RowTile(tokens=2, inputs=1024, elements=4096, rows=8, programs=1),
        ShareTile(inputs=1024, outputs=16, share_inputs=64, warps=4),
        RowTile(tokens=4, elements=4096, rows=8, programs=1),
        ShareTile(outputs=32, share_inputs=64, warps=8),
    ),
    head=HeadTile(tokens=128, inputs=64, stages=4),
    attention=AttentionTile(tokens=64, part=128),
)


def document(**changed):
    """A table with one GPU, as JSON would have it."""
    return {"Some GPU": json.loads(TILES.model_dump_json()) | changed}


@pytest.fixture
def written(tmp_path):
    def write(found):
        path = tmp_path / "tiles.json"
        path.write_text(found if isinstance(found, str) else json.dumps(found))
        return path

    return write


def test_the_first_tile_that_is_for_a_matrix_and_a_number_of_tokens_is_taken():
    linear, of_matrix = TILES.linear, TILES.of_matrix
    assert of_matrix(1, 900) is of_matrix(2, 1024) is linear[0]
    assert of_matrix(3, 900) is of_matrix(32, 1024) is linear[1]
    assert of_matrix(1, 1025) is of_matrix(4, 4096) is linear[2]
    assert of_matrix(5, 1025) is linear[3]
    # Where not one row fits, or not one of both matrices.
    assert of_matrix(1, 5000) is of_matrix(1, 4096, gated=True) is linear[3]


def test_a_matrix_has_as_many_programs_as_the_device_has_multiprocessors_if_its_outputs_allow():
    rows_at_once = RowTile(elements=32768, rows=8, programs=132).rows_at_once
    # A 0.5B draft's: before the attention and after it, gate, down.
    assert rows_at_once(896, 1152, gated=False) == 8
    assert rows_at_once(896, 896, gated=False) == 4
    assert rows_at_once(896, 4864, gated=True) == 8
    assert rows_at_once(4864, 896, gated=False) == 4
    assert rows_at_once(8192, 100, gated=False) == 1


def test_what_is_written_is_read_back(written):
    table = {"Some GPU": TILES.model_copy(update={"measured_us": {"head": {"one": 1.5, "other": None}}})}
    assert tiles.read(written(tiles.dump(table))) == table


LINEAR = document()["Some GPU"]["linear"]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ("{", "Invalid JSON: EOF while parsing an object at line 1 column 1"),
        ("[]", "the file: Input should be an object, found []"),
        (document(linear=[]), 'Some GPU.linear: a last one of kernel "shares" without tokens and inputs, which is for'),
        (document(linear=LINEAR[:3]), "which is for all the rest, is required, found {'tokens': 4, 'kernel': 'rows',"),
        (document(linear=LINEAR[:2]), "is required, found {'inputs': 1024, 'kernel': 'shares',"),
        (
            document(linear=[LINEAR[1] | {"outputs": 48}, LINEAR[3]]),
            "Some GPU.linear.0.shares.outputs: a power of two is required, found 48",
        ),
        (
            document(linear=[LINEAR[0] | {"rows": 0}, LINEAR[3]]),
            "Some GPU.linear.0.rows.rows: Input should be greater than or equal to 1, found 0",
        ),
        (
            document(linear=[{"kernel": "rows"}, LINEAR[3]]),
            "Some GPU.linear.0.rows.elements: required, found nothing",
        ),
        (document(linear=[{"kernel": "tile"}]), "Some GPU.linear.0: Input tag 'tile' found"),
        (
            document(head={"tokens": 128, "inputs": 64, "stages": "4"}),
            "Some GPU.head.stages: Input should be a valid integer, found '4'",
        ),
        (
            document(head={"tokens": 1024, "inputs": 64, "stages": 4}),
            "Some GPU.head.tokens: Input should be less than or equal to 512, found 1024",
        ),
        (
            document(attention={"tokens": 8, "part": 128}),
            "Some GPU.attention.tokens: Input should be greater than or equal to 16, found 8",
        ),
        (document(colour="red"), "Some GPU.colour: Extra inputs are not permitted, found 'red'"),
    ],
    ids=str,
)
def test_a_wrong_file_is_refused_with_its_path_the_field_and_the_reason(found, message, written):
    path = written(found)
    with pytest.raises(TilesError) as raised:
        tiles.read(path)
    assert message in str(raised.value)
    assert all(line.startswith(f"{path}: ") for line in str(raised.value).splitlines())


def test_everything_that_is_wrong_is_said_at_once(written):
    with pytest.raises(TilesError) as raised:
        tiles.read(written({"Some GPU": {"source": 3, "linear": LINEAR}}))
    assert len(str(raised.value).splitlines()) == 3


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(TilesError, match=r"nowhere\.json: a readable file of tile sizes is required: No such file"):
        tiles.read(tmp_path / "nowhere.json")


def test_a_gpus_tiles_cannot_be_changed_by_who_looks_them_up():
    with pytest.raises(ValueError, match="frozen"):
        DEFAULT.source = "mine"
    assert isinstance(DEFAULT, Tiles)
