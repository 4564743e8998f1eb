"""How a worker's measure and its drafts travel to the engine core."""

from dataclasses import dataclass

from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

from nightjar_engine_patch.step_measure import StepMeasure


@dataclass
class MeasuredOutput(ModelRunnerOutput):
    """vLLM's output with our additions; a subclass, because an attribute set in passing may not be pickled."""

    measure: StepMeasure | None = None
    drafts: DraftTokenIds | None = None
    """None when the step proposed nothing."""


def with_measure(output: ModelRunnerOutput, measure: StepMeasure, drafts: DraftTokenIds | None) -> MeasuredOutput:
    """The same output, which is not used any more, as a MeasuredOutput: its fields are taken over, not copied."""
    measured = MeasuredOutput.__new__(MeasuredOutput)
    measured.__dict__ = vars(output)
    measured.measure = measure
    measured.drafts = drafts
    return measured
