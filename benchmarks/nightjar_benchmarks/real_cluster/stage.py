"""The cluster with everything in it that a NightjarService needs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nightjar_benchmarks.images.parts import Images
from nightjar_benchmarks.pairs.make import Pair
from nightjar_benchmarks.real_cluster import node, objects
from nightjar_benchmarks.real_cluster.release import Release


@contextmanager
def stage(root: Path, images: Images, pair: Pair) -> Iterator[Release]:
    """A cluster with images loaded, the chart installed, `pair` on a volume, until the block ends."""
    with node.running(root) as cluster:
        for image in images.all():
            cluster.load(image)
        release = Release(cluster, root, images)
        release.install()
        # By the server: kubectl itself would fetch every schema before, and give up on a busy machine.
        cluster.kubectl("apply", "--server-side", "--filename", "-", given=_list(objects.model_volume(pair.folder)))
        yield release


def _list(items: list[objects.Json]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
