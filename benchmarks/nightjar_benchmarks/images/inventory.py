"""What an image holds: its size, its digests, and a bill of the packages in it."""

import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.images.parts import Images
from nightjar_benchmarks.programs import run

FOLDER = Path("out") / "images"
"""Below the repository."""


@dataclass(frozen=True)
class Entry:
    """One image."""

    image: str
    id: str
    """Digest of its configuration, which names the content of its layers: the same in every registry."""
    layers: tuple[str, ...]
    """Digests of their content, the lowest first."""
    size: int
    """Bytes, before a registry compresses them."""
    packages: int
    """Debian's and Python's."""
    bill: str
    """File of its bill of materials (CycloneDX), beside this record."""


def inventory(root: Path, images: Images) -> list[Entry]:
    """Of all three, as `images.json` and the bills beside it tell; `root` is the repository."""
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    entries = [_taken(image, folder) for image in images.all()]
    text = json.dumps([asdict(entry) for entry in entries], indent=2)
    (folder / "images.json").write_text(f"{text}\n", encoding="utf-8")
    return entries


def entry(image: str, about: Mapping[str, Any], bill: Path) -> Entry:
    """From what `buildah inspect` says of it."""
    found = json.loads(bill.read_text(encoding="utf-8"))["components"]
    return Entry(
        image,
        id=f"sha256:{about['FromImageID']}",
        layers=tuple(about["OCIv1"]["rootfs"]["diff_ids"]),
        size=sum(layer["size"] for layer in json.loads(about["Manifest"])["layers"]),
        packages=sum(component["type"] == "library" for component in found),
        bill=bill.name,
    )


def _taken(image: str, folder: Path) -> Entry:
    name, _, tag = image.rpartition("/")[2].partition(":")
    bill = folder / f"{name}-{tag}.cdx.json"
    # The tag says what is in the image: a bill that is there is right.
    if not bill.exists():
        _write_bill(image, name, tag, bill)
    return entry(image, json.loads(run("buildah", "inspect", "--type", "image", image)), bill)


def _write_bill(image: str, name: str, tag: str, bill: Path) -> None:
    unfinished = bill.with_suffix(".part")
    source = ("--source-name", name, "--source-version", tag)
    with _mounted(image) as tree:
        output = ("--output", f"cyclonedx-json={unfinished}")
        run(syft(), "scan", "--quiet", f"dir:{tree}", *source, *output, environ={"SYFT_CHECK_FOR_APP_UPDATE": "false"})
    unfinished.rename(bill)


def syft() -> str:
    """The program that looks into images; ConfigurationError without it."""
    # Beside this interpreter, where `make setup` puts it.
    folder = Path(sys.executable).parent
    found = shutil.which("syft", path=str(folder))
    if found is None:
        raise ConfigurationError(f"the program syft is required, to list packages, found none in {folder}; make setup")
    return found


@contextmanager
def _mounted(image: str) -> Iterator[str]:
    container = run("buildah", "from", "--pull=never", image).strip()
    try:
        yield run("buildah", "mount", container).strip()
    finally:
        run("buildah", "rm", container)
