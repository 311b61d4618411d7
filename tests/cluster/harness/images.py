"""Container images without a registry: a base image of Debian packages, and images on top of it.

The project's images are built with its own Dockerfile, unchanged, on a base that replaces the one it names. Layers and
archives are in the cache folder, so that only changes are built again.
"""

import hashlib
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from cluster.harness import cache
from cluster.harness.cache import made, report, run
from cluster.harness.programs import INGRESS, programs

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "helm" / "flotilla"
PAUSE = "localhost/pause:1"
CONTROLLER = "localhost/ingress:1"
# These have the default names of the chart, so that it installs without changes.
TAG: str = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
SERVERS = f"docker.io/library/flotilla:{TAG}"
SPARK = f"docker.io/library/flotilla-spark:{TAG}"
POSTGRESQL = str(yaml.safe_load((CHART / "values.yaml").read_text())["postgresql"]["image"])
_CONTAINERS = Path(__file__).parent / "containers"
_SUITE = "bookworm"
_PACKAGES = ("python3", "python3-venv", "ca-certificates")
_TRUST = Path("etc/ssl/certs/ca-certificates.crt")
_KEPT_S = 3600  # archives are large, and read once when a node starts
_LAYERS_MAX = 150  # each change of the project leaves some unused layers


@dataclass(frozen=True)
class Image:
    """An image as an archive that a container runtime can import."""

    name: str
    archive: Path


def all_images() -> list[Image]:
    """Return all images that a cluster starts with."""
    with cache.locked("images"):
        if len(_buildah("images", "--all", "--quiet").split()) > _LAYERS_MAX:
            _buildah("rmi", "--all", "--force")
    return [*cluster_images(), servers(), spark(), postgresql()]


def cluster_images() -> list[Image]:
    """Return the images of the cluster itself."""
    return [pause(), controller()]


def servers() -> Image:
    """Build the image of the servers from the current project."""
    arguments = ["--build-arg", f"BASE={_base()}", "--file", str(ROOT / "Dockerfile")]
    return _build("servers", SERVERS, ROOT, arguments)


def spark() -> Image:
    """Build the image of drivers and executors."""
    arguments = ["--build-arg", f"BASE={_base()}", "--file", str(ROOT / "spark-apps" / "Dockerfile")]
    return _build("spark", SPARK, ROOT, arguments)


def postgresql() -> Image:
    """Build an image of PostgreSQL."""
    file = _CONTAINERS / "postgresql.Dockerfile"
    arguments = ["--build-arg", f"BASE={_base()}", "--file", str(file)]
    return _build("postgresql", POSTGRESQL, _CONTAINERS, arguments)


def pause() -> Image:
    """Build the sandbox image of pods."""

    def compile_it(folder: Path) -> None:
        run(["gcc", "-static", "-Os", "-o", folder / "pause", _CONTAINERS / "pause.c"])

    context = made("pause", _digest([_CONTAINERS / "pause.c"]), compile_it)
    return _build("pause", PAUSE, context, ["--file", str(_CONTAINERS / "pause.Dockerfile")])


def controller() -> Image:
    """Build the image of the ingress controller."""
    return _build("ingress", CONTROLLER, programs(INGRESS), ["--file", str(_CONTAINERS / "ingress.Dockerfile")])


def _base() -> str:
    """Return the name of the base image, which contains a hash of its inputs; build it if it does not exist."""

    def bootstrap(folder: Path) -> None:
        rootfs = folder / "rootfs"
        command = ["debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", _SUITE, str(rootfs)]
        run([*command, *_mirror()], log=folder / "debootstrap.log", alone=True)
        shutil.copyfile(Path("/") / _TRUST, rootfs / _TRUST)  # the image trusts the same CAs as this machine
        (rootfs / "etc" / "pip.conf").write_text(f"[global]\ncert = /{_TRUST}\n{_pip_index()}")
        for rest in ("var/cache/apt/archives", "var/lib/apt/lists"):
            shutil.rmtree(rootfs / rest)
            (rootfs / rest).mkdir()

    made_of = [" ".join([_SUITE, *_PACKAGES]), (_CONTAINERS / "base.Dockerfile").read_text(), _pip_index()]
    trusted = (Path("/") / _TRUST).read_bytes()
    key = hashlib.sha256("\n".join(made_of).encode() + trusted).hexdigest()[:12]
    folder = made("base", key, bootstrap)
    with cache.locked("images"):
        tag = f"localhost/base:{key}"
        if _image_id(tag) is None:
            _buildah("bud", "--quiet", "--tag", tag, "--file", str(_CONTAINERS / "base.Dockerfile"), str(folder))
    return tag


def _mirror() -> list[str]:
    """Use the package mirror of this machine."""
    wanted = ["Created-By: Packages", "Origin: Debian", f"Codename: {_SUITE}"]
    return run(["apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted]).split()[:1]


def _pip_index() -> str:
    """Use the Python package index of this machine."""
    try:
        index = run(["python3", "-m", "pip", "config", "get", "global.index-url"]).strip()
    except cache.CommandFailed:  # the default index
        return ""
    return f"index-url = {index}\n"


def _build(name: str, tag: str, context: Path, arguments: list[str]) -> Image:
    """Build an image, and write its archive unless it exists."""
    began = time.monotonic()
    with cache.locked("images"):  # another clone may use the same image name
        flags = ["--quiet", "--layers", "--isolation", "chroot", "--network", "host", "--tag", tag]
        _buildah("bud", *flags, *arguments, str(context))
        image_id = _image_id(tag)
        assert image_id is not None

        def write(folder: Path) -> None:
            _buildah("push", "--quiet", tag, f"docker-archive:{folder / 'image.tar'}:{tag}")

        key = hashlib.sha256(f"{tag} {image_id}".encode()).hexdigest()[:12]
        archive = made(f"image-{name}", key, write, _KEPT_S) / "image.tar"
    report(f"image {tag}: {archive.stat().st_size >> 20} MiB, {time.monotonic() - began:.0f} s")
    return Image(tag, archive)


def _image_id(tag: str) -> str | None:
    found = _buildah("images", "--quiet", "--no-trunc", "--filter", f"reference={tag}").split()
    return found[0] if found else None


def _buildah(*words: str) -> str:
    """Run buildah with its own storage."""
    storage = cache.folder() / "images"
    settings = storage / "containers.conf"
    storage.mkdir(mode=0o700, exist_ok=True)
    settings.write_text(f'[network]\nnetwork_config_dir = "{storage / "networks"}"\n')  # the default is /etc/cni
    return run(
        ["buildah", "--root", storage / "root", "--runroot", storage / "run", "--storage-driver", "overlay", *words],
        environment={"BUILDAH_FORMAT": "docker", "CONTAINERS_CONF": str(settings)},
        alone=True,
    )


def _digest(files: Iterable[Path]) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
