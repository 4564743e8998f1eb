"""vLLM's output that is still on its way from the device, with our measure."""

from typing import Any

from vllm.v1.outputs import AsyncModelRunnerOutput

from nightjar_engine_patch.gpu.step_timer import Step
from nightjar_engine_patch.measured_output import with_measure
from nightjar_engine_patch.step_measure import StepMeasure


class MeasuredAsyncOutput(AsyncModelRunnerOutput):
    """When the tokens are here the device has passed this step's forward pass, and all of the step before."""

    def __init__(self, output: AsyncModelRunnerOutput, measure: StepMeasure, step: Step) -> None:
        self._output = output
        self._measure = measure
        self._step = step

    def get_output(self) -> Any:
        output = self._output.get_output()
        measure, step = self._measure, self._step
        measure.forward_ns = step.own.forward_ns()
        if step.before is not None:
            measure.before = (step.before.draft_ns(), step.before.catch_up_ns())
        return with_measure(output, measure, None)
