"""How a directive travels to the workers."""

from dataclasses import dataclass, field

from vllm.v1.core.sched.output import SchedulerOutput

from nightjar_engine_patch.elastic.directive import Directive


@dataclass
class DirectedOutput(SchedulerOutput):
    """vLLM's output with a directive; a subclass, because an attribute set in passing may not be pickled."""

    directive: Directive = field(kw_only=True)


def with_directive(output: SchedulerOutput, directive: Directive) -> DirectedOutput:
    """The same output, which is not used any more: its fields are taken over, not copied."""
    directed = DirectedOutput.__new__(DirectedOutput)
    directed.__dict__ = vars(output)
    directed.directive = directive
    return directed
