"""Errors of talking to the Kubernetes API; each says what to do about it.

ClusterError              a request was not answered as asked
├── UnavailableError      try again later: no answer, too late, overloaded
│   └── ConflictError     somebody was faster: look again
└── RefusedError          the answer will stay the same until somebody changes something
    ├── ForbiddenError    the operator lacks a permission
    └── NameTakenError    an object of somebody else has the name
"""


class ClusterError(RuntimeError):
    """A request to the Kubernetes API failed; the message is complete without a traceback."""


class UnavailableError(ClusterError):
    """No answer, or none that says anything about the request."""


class ConflictError(UnavailableError):
    """The object is not what the request took it for any more."""


class RefusedError(ClusterError):
    """The API server refused the request."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class ForbiddenError(RefusedError):
    """The operator's service account may not do this."""


class NameTakenError(RefusedError):
    """An object that the operator did not make has the name of one it needs."""
