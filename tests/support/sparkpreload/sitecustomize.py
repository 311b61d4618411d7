"""On the path of Spark's Python, this makes the daemon import modules once, before it forks workers.

Spark leaves imports to the workers because pandas and pyarrow start threads, which a fork does not copy. The variables
below prevent the threads. If there is one nevertheless, the process exits with an error instead of forking.
"""

import importlib
import os
import sys

_SINGLE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_TASKS = "pyspark.worker"  # runs functions on rows, which needs pandas; the others plan and commit


def preload(worker: str) -> None:
    """Import the modules of workers, and check that this process has only one thread."""
    os.environ.update(_SINGLE)
    for module in (worker, "pyarrow.compute", "pyspark_flotilla.source", *(["pandas"] if worker == _TASKS else [])):
        importlib.import_module(module)
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208 - numbers, not paths
        raise SystemExit("what was imported has started a thread: Spark must not fork this process")


if sys.platform == "linux" and sys.orig_argv[-2:-1] == ["pyspark.daemon"]:
    preload(sys.orig_argv[-1])
