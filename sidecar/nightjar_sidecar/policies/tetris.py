"""TETRIS (arXiv 2502.15197): of all drafts of a batch, those most likely to be reached are verified.

Every request drafts the same length; the capacity, tokens that a step verifies at most, is shared out by
the draft's own probabilities. Drafting costs the same as ever, and speculation is never off.
"""

import heapq
from collections.abc import Sequence


def select(probabilities: Sequence[Sequence[float]], capacity: int) -> list[int]:
    """How many drafts of each request are verified, at most `capacity` in all.

    `probabilities[i][j]` is what the draft gave to its own token j of request i; a draft's score is the product
    up to it, so the chosen ones are a prefix of each request. O(capacity · log requests).
    """
    chosen = [0] * len(probabilities)
    heap = [(-row[0], index) for index, row in enumerate(probabilities) if row]
    heapq.heapify(heap)
    for _ in range(capacity):
        if not heap:
            break
        score, index = heap[0]
        chosen[index] += 1
        row = probabilities[index]
        if chosen[index] < len(row):
            heapq.heapreplace(heap, (score * row[chosen[index]], index))
        else:
            heapq.heappop(heap)
    return chosen
