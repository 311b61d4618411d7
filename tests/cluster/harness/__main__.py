"""Run a cluster for development: python -m cluster.harness [build | bare]. Ctrl-C stops it.

`build` only makes the missing programs and images. A `bare` cluster starts sooner, without the images of Flotilla.
"""

import contextlib
import signal
import sys
from pathlib import Path

from cluster.harness import cluster, images
from cluster.harness.cache import report
from cluster.harness.machine import missing_requirement
from cluster.harness.programs import MODULES, programs


def main(words: list[str]) -> int:
    """Build what is missing; without `build`, run a cluster until Ctrl-C."""
    missing = missing_requirement()
    if missing is not None:
        report(missing)
        return 1
    if words == ["build"]:
        for module in MODULES:
            programs(module)
        images.all_images()
        return 0
    with cluster.running(is_bare=words == ["bare"]) as found:
        report("Press Ctrl-C to stop it. In another terminal:")
        programs_at = sorted({str(Path(program).parent) for program in (found.kubectl_program, found.helm_program)})
        for name, value in {
            "KUBECONFIG": found.kubeconfig,
            "FLOTILLA_IMAGES": found.image_prefix,
            "FLOTILLA_HTTP": found.http,
            "FLOTILLA_HTTPS": found.https,
            "PATH": ":".join([*programs_at, "$PATH"]),
        }.items():
            print(f"export {name}={value}", flush=True)  # noqa: T201 - the output of the command
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    return 0


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
