"""Put on the path of Spark's Python, this has a daemon import once what each worker that it forks would import anew.

Spark leaves that to workers because pandas and pyarrow start threads, which a fork does not copy. The variables below
keep them from it; should there be a thread all the same, this ends with an error rather than fork.
"""

import importlib
import os
import sys

_SINGLE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_TASKS = "pyspark.worker"  # runs functions on rows, and has pandas for that; the others plan and commit


def preload(worker: str) -> None:
    """Import what workers need, and see that this process has no more than one thread."""
    os.environ.update(_SINGLE)
    for module in (worker, "pyarrow.compute", "pyspark_flotilla.source", *(["pandas"] if worker == _TASKS else [])):
        importlib.import_module(module)
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208 - they are numbers, not paths
        raise SystemExit("what was imported has started a thread: Spark must not fork this process")


if sys.platform == "linux" and sys.orig_argv[-2:-1] == ["pyspark.daemon"]:
    preload(sys.orig_argv[-1])
