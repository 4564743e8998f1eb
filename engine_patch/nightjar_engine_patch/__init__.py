"""vLLM plugin: a scheduler that obeys the planner, a draft that costs nothing when off, and the control plane.

This module imports only the standard library: vLLM logs an exception raised while importing an entry point and
goes on unpatched, but stops on one raised by `register()` (vllm/plugins/__init__.py).
"""


def register() -> None:
    """Entry point of the group `vllm.general_plugins`; vLLM calls it once in every one of its processes.

    Changes nothing for an engine whose `additional_config` has no key `nightjar`.
    """
    from nightjar_engine_patch.activation import install

    install()
