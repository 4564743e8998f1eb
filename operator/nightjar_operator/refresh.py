"""When to touch a pod so that its kubelet brings the newest settings file at once.

A kubelet looks at the ConfigMaps behind a pod's volumes about once a minute, and whenever the pod changes. So an
annotation of the pod (not of the template: nothing restarts) is changed when its sidecar still obeys older
settings. The kubelet may see the pod before it sees the ConfigMap; then the touch was in vain and is repeated.
"""

from nightjar_operator.pods import Pod
from nightjar_operator.reports import Planning, Report

_PAUSE_SECONDS = 2.0
_MOST_TOUCHES = 5


def pause(touches: int) -> float:
    """Seconds to wait for an effect after the `touches`-th touch."""
    return float(_PAUSE_SECONDS * 2 ** (touches - 1))


def touches(pod: Pod, revision: str) -> int:
    """How often the pod was touched for this revision."""
    touched_for, _, count = pod.refresh.rpartition(".")
    return int(count) if touched_for == revision and count.isdecimal() else 0


def is_behind(pod: Pod, revision: str, report: Report | None) -> bool:
    """Whether a touch can help: the sidecar runs, obeys other settings, and did not refuse the newer ones."""
    return isinstance(report, Planning) and report.revision != revision and report.refused is None and not pod.leaving


def next_touch(pod: Pod, revision: str, seconds_since_last: float) -> str | None:
    """The annotation's next value for a pod that is behind; None while an effect may still come, or at the end.

    After the last touch the kubelet's own round brings the file.
    """
    made = touches(pod, revision)
    if made >= _MOST_TOUCHES or (made and seconds_since_last < pause(made)):
        return None
    return f"{revision}.{made + 1}"
