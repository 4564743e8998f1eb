"""One vLLM engine whose draft has two passes to choose from (see `gpu_engine.under_test`)."""

from typing import Any

from google.protobuf.json_format import MessageToDict

from nightjar_benchmarks.gpu_engine.under_test import EngineUnderTest, main
from nightjar_benchmarks.gpu_fused.agreement import greedy_by_both


class FusedUnderTest(EngineUnderTest):
    """Also answers what is asked for by the methods here."""

    def passes(self) -> dict[str, Any]:
        """What the engine chose at its start, as `DraftPass` says it, and whose tiles; or why there was no choice."""
        # It is told with the first step.
        self.generate(prompts=[[1, 2, 3]], tokens=4)
        if self.control is None:
            raise RuntimeError("an engine with the plugin is required, found stock vLLM")
        info = self.control.info()
        rows = [
            MessageToDict(one, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
            for one in info.draft_passes
        ]
        return {"passes": rows, "refusal": info.fused_draft_refusal, "tiles": info.draft_tiles}

    def agreement(self, rows: int, tokens: int, vocabulary: list[int]) -> dict[str, Any]:
        """See `agreement.greedy_by_both`; requests that come later may find drafts that were never theirs."""
        (found,) = self.llm.collective_rpc(greedy_by_both, args=(rows, tokens, vocabulary))
        answer: dict[str, Any] = found
        return answer


if __name__ == "__main__":
    main(FusedUnderTest)
