"""One pass of the standalone draft over any part of any requests of the batch, on the CPU."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from vllm.forward_context import set_forward_context
from vllm.v1.attention.backend import CommonAttentionMetadata

from nightjar_engine_patch.freshness import Feed, Indices, Ints


class DraftPass:
    """Runs vLLM's loaded draft model on its own KV cache.

    Takes over `DraftModelProposer.propose` (vllm/v1/spec_decode/llm_base_proposer.py), which can neither skip
    requests nor read tokens that the target did not process in the same step.
    """

    def __init__(self, drafter: Any, vllm_config: Any) -> None:
        self._drafter = drafter
        self._vllm_config = vllm_config

    def read(self, feed: Feed, tokens: Ints, block_table: torch.Tensor) -> torch.Tensor:
        """Write the draft's KV for `feed`; the hidden state of each request's last token, [feed, hidden].

        tokens: [rows, max_model_len], the known tokens of each row of the batch
        block_table: [rows, max blocks], block ids of the draft's KV cache group
        """
        lengths = feed.end - feed.start
        ends = np.cumsum(lengths, dtype=np.int32)
        rows = np.repeat(feed.rows, lengths)
        # Counts up from each request's start.
        positions = np.arange(ends[-1], dtype=np.int64) + np.repeat(feed.end - ends, lengths)
        query_starts = np.concatenate((np.zeros(1, dtype=np.int32), ends))
        hidden = self._forward(feed, tokens[rows, positions], positions, rows, query_starts, block_table)
        return hidden[torch.from_numpy(ends - 1)]

    def sample(self, hidden: torch.Tensor) -> npt.NDArray[np.int64]:
        """The draft's greedy token for each hidden state, [feeds]."""
        sampled: npt.NDArray[np.int64] = self._drafter._greedy_sample(hidden).numpy()
        return sampled

    def _forward(
        self,
        feed: Feed,
        input_ids: Ints,
        positions: npt.NDArray[np.int64],
        rows: Indices,
        query_starts: Ints,
        block_table: torch.Tensor,
    ) -> torch.Tensor:
        drafter = self._drafter
        block = drafter.block_size
        blocks = block_table.numpy()[rows, positions // block].astype(np.int64)
        slots = torch.from_numpy(blocks * block + positions % block)
        starts = torch.from_numpy(query_starts)
        metadata = CommonAttentionMetadata(
            query_start_loc=starts,
            query_start_loc_cpu=starts,
            seq_lens=torch.from_numpy(feed.end),
            num_reqs=len(feed),
            num_actual_tokens=len(input_ids),
            max_query_len=int((feed.end - feed.start).max()),
            max_seq_len=int(feed.end.max()),
            block_table_tensor=block_table[torch.from_numpy(feed.rows)],
            slot_mapping=slots,
            causal=True,
        )
        _, by_layer = drafter.build_per_group_and_layer_attn_metadata(metadata)
        with set_forward_context(
            by_layer,
            self._vllm_config,
            num_tokens=len(input_ids),
            slot_mapping=dict.fromkeys(drafter._draft_attn_layer_names, slots),
        ):
            hidden: torch.Tensor = drafter.model(
                input_ids=torch.from_numpy(input_ids), positions=torch.from_numpy(positions), inputs_embeds=None
            )
        return hidden
