"""Container images without a registry: a base made of Debian's packages, and what is built on it.

The project's own images are built with the project's own Dockerfile, unchanged, on a base that stands in for the one
that it names. Layers and archives are kept in the cache folder, so that only what changed is built again.
"""

import hashlib
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from cluster.harness import cache
from cluster.harness.cache import made, run, say
from cluster.harness.programs import INGRESS, programs

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "helm" / "flotilla"
PAUSE = "localhost/pause:1"
CONTROLLER = "localhost/ingress:1"
# These have the names that the chart asks for by default, so that it installs here as it does anywhere.
TAG: str = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
SERVERS = f"docker.io/library/flotilla:{TAG}"
SPARK = f"docker.io/library/flotilla-spark:{TAG}"
POSTGRESQL = str(yaml.safe_load((CHART / "values.yaml").read_text())["postgresql"]["image"])
_CONTAINERS = Path(__file__).parent / "containers"
_SUITE = "bookworm"
_PACKAGES = ("python3", "python3-venv", "ca-certificates")
_TRUST = Path("etc/ssl/certs/ca-certificates.crt")
_KEPT_S = 3600  # archives are large, and read once, when a node starts
_LAYERS_MAX = 150  # a change of the project leaves a few behind, which nothing uses any more


@dataclass(frozen=True)
class Image:
    """An image as a file that a container runtime can import."""

    name: str
    archive: Path


def all_images() -> list[Image]:
    """Have every image that a cluster starts with."""
    with cache.locked("images"):
        if len(_buildah("images", "--all", "--quiet").split()) > _LAYERS_MAX:
            _buildah("rmi", "--all", "--force")
    return [pause(), servers(), spark(), postgresql(), controller()]


def servers() -> Image:
    """Build the image of the servers, from the project as it is now."""
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
    """Build the image that every pod begins with."""

    def compile_it(folder: Path) -> None:
        run(["gcc", "-static", "-Os", "-o", folder / "pause", _CONTAINERS / "pause.c"])

    context = made("pause", _digest([_CONTAINERS / "pause.c"]), compile_it)
    return _build("pause", PAUSE, context, ["--file", str(_CONTAINERS / "pause.Dockerfile")])


def controller() -> Image:
    """Build the image of the ingress controller."""
    return _build("ingress", CONTROLLER, programs(INGRESS), ["--file", str(_CONTAINERS / "ingress.Dockerfile")])


def _base() -> str:
    """Have the base image; return its name, which says what it was made of."""

    def bootstrap(folder: Path) -> None:
        rootfs = folder / "rootfs"
        command = ["debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", _SUITE, str(rootfs)]
        run([*command, *_mirror()], log=folder / "debootstrap.log", alone=True)
        shutil.copyfile(Path("/") / _TRUST, rootfs / _TRUST)  # whom this machine trusts, the image trusts
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
    """Take Debian's packages from where this machine takes them; debootstrap knows a place by itself."""
    wanted = ["Created-By: Packages", "Origin: Debian", f"Codename: {_SUITE}"]
    return run(["apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted]).split()[:1]


def _pip_index() -> str:
    """Take Python's packages from where this machine takes them."""
    try:
        index = run(["python3", "-m", "pip", "config", "get", "global.index-url"]).strip()
    except cache.CommandFailed:  # the usual place
        return ""
    return f"index-url = {index}\n"


def _build(name: str, tag: str, context: Path, arguments: list[str]) -> Image:
    """Build an image, and write its archive unless that image was written before."""
    began = time.monotonic()
    with cache.locked("images"):  # until it is written: another clone may give its own image the same name
        flags = ["--quiet", "--layers", "--isolation", "chroot", "--network", "host", "--tag", tag]
        _buildah("bud", *flags, *arguments, str(context))
        image_id = _image_id(tag)
        assert image_id is not None

        def write(folder: Path) -> None:
            _buildah("push", "--quiet", tag, f"docker-archive:{folder / 'image.tar'}:{tag}")

        key = hashlib.sha256(f"{tag} {image_id}".encode()).hexdigest()[:12]
        archive = made(f"image-{name}", key, write, _KEPT_S) / "image.tar"
    say(f"image {tag}: {archive.stat().st_size >> 20} MiB, {time.monotonic() - began:.0f} s")
    return Image(tag, archive)


def _image_id(tag: str) -> str | None:
    found = _buildah("images", "--quiet", "--no-trunc", "--filter", f"reference={tag}").split()
    return found[0] if found else None


def _buildah(*words: str) -> str:
    """Run buildah on storage of our own."""
    storage = cache.folder() / "images"
    settings = storage / "containers.conf"
    storage.mkdir(mode=0o700, exist_ok=True)
    settings.write_text(f'[network]\nnetwork_config_dir = "{storage / "networks"}"\n')  # or it is /etc/cni
    return run(
        ["buildah", "--root", storage / "root", "--runroot", storage / "run", "--storage-driver", "overlay", *words],
        environment={"BUILDAH_FORMAT": "docker", "CONTAINERS_CONF": str(settings)},
        alone=True,
    )


def _digest(files: Iterable[Path]) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
