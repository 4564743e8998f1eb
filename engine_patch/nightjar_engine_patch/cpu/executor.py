"""Drafts come with the step's output, instead of by a call of their own after every step."""

from typing import Any

from vllm.v1.executor.multiproc_executor import MultiprocExecutor

from nightjar_engine_patch.cpu import processors, waiting
from nightjar_engine_patch.measured_output import MeasuredOutput


class NightjarExecutor(MultiprocExecutor):
    """vLLM's executor for a worker in its own process, without the second round trip of a step.

    With a draft configured, EngineCore asks for drafts after each step, whether there are any or not
    (`EngineCore.post_step`, vllm/v1/engine/core.py). Ours are in the output already; at γ = 0 the question alone
    would cost more than everything else that is left of speculation.
    """

    _drafts: Any = None

    def _init_executor(self) -> None:
        waiting.rest_while_waiting()
        super()._init_executor()
        # Their threads are bound by now.
        waiting.rest_while_waiting(processors.sleep_off(worker.proc.pid for worker in self.workers))

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:  # noqa: FBT001, FBT002 - vLLM's signature
        output: MeasuredOutput = super().sample_tokens(grammar_output, non_block)
        self._drafts = output.drafts
        return output

    def take_draft_token_ids(self) -> Any:
        """The drafts of the last step, once; None when it proposed nothing (vllm.v1.outputs.DraftTokenIds)."""
        drafts, self._drafts = self._drafts, None
        return drafts
