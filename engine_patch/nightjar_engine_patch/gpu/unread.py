"""How many tokens the draft has yet to read of each request, without asking the device.

On the GPU a step is prepared before the previous one's tokens are known, so the host knows only bounds. They suffice:
a step that drafts leaves at most one computed token unread (its last draft, if all were accepted), and every other
step leaves unread what it computed, of which the host knows the most it can be. The device, which knows how many
tokens are computed, counts back from there (`nightjar_kernels.draft_inputs`).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]

# The first pass of a draft reads the last computed token and the newest one.
FIRST_PASS_TOKENS = 2
FRESH = FIRST_PASS_TOKENS - 1

# More than any context has, and far from where a number of this width ends.
_EVERYTHING = 1 << 30


class Unread:
    """By slot of a request: computed tokens that the draft has not read, at most."""

    def __init__(self, slots: int) -> None:
        self._unread = np.zeros(slots, dtype=np.int32)
        self._drafted = np.zeros(slots, dtype=np.bool_)

    def start(self, slot: int, unread: int) -> None:
        """A request gets the slot; so many of its tokens are computed, from the prefix cache, and unread."""
        self._unread[slot] = unread
        self._drafted[slot] = False

    def step(self, slots: Indices, scheduled: Ints, computed: Ints) -> Ints:
        """A step computed `scheduled` tokens of each request at most; what is unread now, [rows].

        computed: the most tokens that can be computed before the step, [rows]
        """
        grown = np.minimum(self._unread[slots] + scheduled, computed + scheduled)
        unread: Ints = np.where(self._drafted[slots], FRESH, grown).astype(np.int32)
        self._unread[slots] = unread
        self._drafted[slots] = False
        return unread

    def read(self, slots: Indices, tokens: Ints) -> None:
        self._unread[slots] -= tokens

    def forget_all(self) -> None:
        """What the draft has read is lost, and with it what it drafted from."""
        self._unread[:] = _EVERYTHING
        self._drafted[:] = False

    def draft(self, slots: Indices) -> None:
        """These requests' drafts will be verified by the next step that they are part of."""
        self._drafted[slots] = True


@dataclass(frozen=True)
class DraftPlan:
    """What one step reads and who drafts in it."""

    pieces: Ints
    """Unread tokens to read before drafting, [rows]."""
    drafting: Flags
    """[rows]"""


def plan_draft(unread: Ints, prefilling: Flags, room: Flags, budget: int) -> DraftPlan:
    """Requests whose draft is fresh draft at once; the others share `budget` tokens, in the order of the rows.

    unread: [rows]
    prefilling: requests whose prompt goes on after this step, [rows]; they read along, and draft nothing
    room: requests whose context has room for drafts, [rows]; without it they are left alone
    """
    behind = (unread > FRESH) | prefilling
    if not behind.any():
        # Most steps.
        return DraftPlan(np.zeros(len(unread), dtype=np.int32), room)
    wanted = np.where(room & behind, unread, 0)
    left = budget - (np.cumsum(wanted) - wanted)
    pieces = np.minimum(np.maximum(left, 0), wanted).astype(np.int32)
    return DraftPlan(pieces, room & ~prefilling & (unread - pieces <= FRESH))
