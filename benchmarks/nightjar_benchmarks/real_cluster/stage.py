"""The cluster with everything in it that a NightjarService needs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nightjar_benchmarks.images.parts import Images
from nightjar_benchmarks.pairs.make import Pair
from nightjar_benchmarks.real_cluster import node, objects
from nightjar_benchmarks.real_cluster.node import NodeCluster


@contextmanager
def stage(root: Path, images: Images, pair: Pair) -> Iterator[NodeCluster]:
    """Images loaded, definition and operator installed, `pair` on a volume, until the block ends."""
    with node.running(root) as cluster:
        for image in images.all():
            cluster.load(image)
        cluster.kubectl("apply", "--server-side", "--filename", str(root / "crds"))
        items = [*objects.operator(root, images), *objects.model_volume(pair.folder)]
        # By the server: kubectl itself would fetch every schema before, and give up on a busy machine.
        cluster.kubectl("apply", "--server-side", "--filename", "-", given=_list(items))
        yield cluster


def _list(items: list[objects.Json]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
