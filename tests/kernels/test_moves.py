import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nightjar_kernels.moves import block_moves


def test_the_lookup_maps_moved_blocks_and_leaves_the_others():
    moves = block_moves([(7, 1), (5, 0)], num_blocks=8, device="cpu")
    assert moves.lookup().tolist() == [0, 1, 2, 3, 4, 0, 6, 1]
    assert moves.lookup().dtype == torch.int32


def test_no_moves_make_an_identity_lookup():
    moves = block_moves([], num_blocks=3, device="cpu")
    assert len(moves) == 0
    assert moves.lookup().tolist() == [0, 1, 2]


@given(st.permutations(range(11)), st.integers(0, 5))
def test_disjoint_pairs_are_accepted_in_their_order(ids: list[int], count: int):
    pairs = list(zip(ids[:count], ids[count : 2 * count], strict=True))
    moves = block_moves(pairs, num_blocks=11, device="cpu")
    assert list(zip(moves.old.tolist(), moves.new.tolist(), strict=True)) == pairs
    assert moves.old.dtype == torch.int64


@pytest.mark.parametrize("pair", [(8, 0), (0, 8), (-1, 0), (0, -1)])
def test_an_id_outside_the_cache_is_refused(pair: tuple[int, int]):
    with pytest.raises(ValueError, match=f"from 0 to 7 are required, found the move {pair[0]} → {pair[1]}"):
        block_moves([pair], num_blocks=8, device="cpu")


@pytest.mark.parametrize(
    "pairs",
    [[(1, 2), (1, 3)], [(1, 2), (3, 2)], [(1, 2), (2, 3)], [(2, 3), (1, 2)], [(2, 2)]],
    ids=["source twice", "destination twice", "chain", "reversed chain", "onto itself"],
)
def test_an_id_used_twice_is_refused(pairs: list[tuple[int, int]]):
    with pytest.raises(ValueError, match=r"disjoint moves are required .* found block [12] a second time"):
        block_moves(pairs, num_blocks=8, device="cpu")
