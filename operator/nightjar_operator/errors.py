"""Errors of a running pod; what a person wrote wrong is a `nightjar_api.errors.ConfigurationError`.

PodError              the pod is gone or never was; everything it started has been stopped
├── NotReadyError     a container exited before it was ready, or a deadline passed
└── EngineExitedError the engine exited while it served
"""


class PodError(RuntimeError):
    """A pod cannot serve; the message is complete without a traceback."""


class NotReadyError(PodError):
    """A container did not become ready; `exit_code` is None when its deadline passed."""

    def __init__(self, message: str, exit_code: int | None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class EngineExitedError(PodError):
    """The engine exited while it served."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
