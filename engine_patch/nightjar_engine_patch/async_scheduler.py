"""The same for a scheduler that prepares the next step before this one's tokens are known (GPUs)."""

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from nightjar_engine_patch.scheduler import NightjarScheduler


class NightjarAsyncScheduler(NightjarScheduler, AsyncScheduler):
    """Between ours and vLLM's own lies vLLM's asynchronous one (vllm/v1/core/sched/async_scheduler.py).

    That one hands as many placeholders to each request as the step drafts, and the workers fill them in.
    """
