"""What an executor's pod runs: `python3 -m flotilla_spark.executor`, as Spark on Kubernetes asks for it.

Spark tells an executor who it is in variables; what it runs is up to the image.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_OPTION = "SPARK_JAVA_OPT_"
_MAIN = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_TOLD = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


class NotTold(Exception):
    """A variable is missing."""


def command(environment: Mapping[str, str], spark_home: Path) -> list[str]:
    """Write the command of the JVM; raises NotTold."""
    missing = [name for name in (*_TOLD.values(), "SPARK_EXECUTOR_MEMORY") if not environment.get(name)]
    if missing:
        raise NotTold(f"Spark has not told {', '.join(missing)}: this is for pods that a driver of Spark makes")
    numbered = {name: value for name, value in environment.items() if name.startswith(_OPTION)}
    options = [numbered[name] for name in sorted(numbered, key=lambda name: int(name.removeprefix(_OPTION)))]
    home, heap = environment.get("JAVA_HOME"), environment["SPARK_EXECUTOR_MEMORY"]
    return [
        str(Path(home, "bin", "java")) if home else "java",
        *options,
        f"-Xms{heap}",
        f"-Xmx{heap}",
        "-cp",
        f"{spark_home}/jars/*",
        _MAIN,
        *(word for flag, name in _TOLD.items() for word in (flag, environment[name])),
    ]


def main() -> int:
    """Become the executor."""
    import pyspark  # noqa: PLC0415 - only to know where it is

    try:
        words = command(os.environ, Path(pyspark.__file__).parent)
    except NotTold as error:
        print(f"executor: {error}", file=sys.stderr)  # noqa: T201 - the pod's log
        return 2
    return os.execvp(words[0], words)  # noqa: S606 - with no shell in between; it does not return


if __name__ == "__main__":
    sys.exit(main())
