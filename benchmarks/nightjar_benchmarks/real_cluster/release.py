"""The chart in the cluster, installed as docs/install.md says."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nightjar_benchmarks.images.parts import Images
from nightjar_benchmarks.real_cluster.node import NodeCluster
from nightjar_benchmarks.real_cluster.objects import NAMESPACE

NAME = "nightjar"
LABELS = f"app.kubernetes.io/instance={NAME}"
"""Of all that the release makes, and nothing else."""
_OPERATORS = f"{LABELS},app.kubernetes.io/component=operator"
# Helm returns when what it changed is ready, or has gone; on a busy node that takes its time.
_PATIENCE = ("--wait", "--timeout=5m")

Json = dict[str, Any]


@dataclass(frozen=True)
class Release:
    """The chart of the repository at `root`, with `images`."""

    cluster: NodeCluster
    root: Path
    images: Images

    def install(self) -> None:
        self._helm("install", NAME, self._chart, "--create-namespace", *_PATIENCE, values=self.images.values())

    def upgrade(self, values: Json) -> None:
        """These values change, the others stay."""
        self._helm("upgrade", NAME, self._chart, "--reset-then-reuse-values", *_PATIENCE, values=values)

    def rollback(self) -> None:
        """To what the last upgrade found."""
        self._helm("rollback", NAME, *_PATIENCE)

    def test(self) -> str:
        """What `helm test` says; RuntimeError when its pod does not succeed."""
        return self._helm("test", NAME, "--timeout=3m")

    def uninstall(self) -> None:
        self._helm("uninstall", NAME, *_PATIENCE)

    def pods(self) -> list[Json]:
        """Of operators, those that stay."""
        items = self.cluster.json("--namespace", NAMESPACE, "get", "pods", "--selector", _OPERATORS)["items"]
        return [item for item in items if "deletionTimestamp" not in item["metadata"]]

    @property
    def _chart(self) -> str:
        return str(self.root / "charts" / "nightjar")

    def _helm(self, *arguments: str, values: Json | None = None) -> str:
        given = () if values is None else ("--values", "-")
        text = None if values is None else json.dumps(values)
        return self.cluster.helm("--namespace", NAMESPACE, *arguments, *given, given=text)
