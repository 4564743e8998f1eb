"""Short contexts and long ones: a draft's passes are captured apart for them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

# Splitting a row's attention over the device costs more than it gains up to some context, the later the more rows
# there are to share the device. Measured with a draft of 24 layers, 2 KV heads of 64: 1 row 550, 8 rows 850, 16 rows
# 1,150, 32 rows 1,800 tokens.
SHORT_CONTEXT, SHORT_CONTEXT_A_ROW = 512, 40

# What passes over long contexts are made for and timed at; they serve longer ones too.
LONG_CONTEXT = 4096


def short_context(rows: int) -> int:
    """The longest that counts as short, in tokens."""
    return SHORT_CONTEXT + SHORT_CONTEXT_A_ROW * rows


@contextmanager
def unsplit_attention(attn_groups: Iterable[Iterable[Any]]) -> Iterator[None]:
    """FlashAttention splits no row inside; other backends know nothing of it
    (`FlashAttentionMetadataBuilder.max_num_splits`, vllm/v1/attention/backends/flash_attn.py).
    """
    builders = [group.get_metadata_builder() for groups in attn_groups for group in groups]
    before = [(one, one.max_num_splits) for one in builders if hasattr(one, "max_num_splits")]
    for builder, _ in before:
        builder.max_num_splits = 1
    try:
        yield
    finally:
        for builder, splits in before:
            builder.max_num_splits = splits
