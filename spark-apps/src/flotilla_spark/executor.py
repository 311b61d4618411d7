"""Entry point of executor pods: `python3 -m flotilla_spark.executor`.

Spark on Kubernetes passes the identity of an executor in environment variables. The image has to start the JVM.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_JAVA_OPTION = "SPARK_JAVA_OPT_"
_MAIN = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_FLAGS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


class VariableMissing(Exception):
    """A required environment variable is missing."""


def command(environment: Mapping[str, str], spark_home: Path) -> list[str]:
    """Return the command line of the JVM; raises VariableMissing."""
    missing = [name for name in (*_FLAGS.values(), "SPARK_EXECUTOR_MEMORY") if not environment.get(name)]
    if missing:
        raise VariableMissing(
            f"missing environment variables: {', '.join(missing)}. Spark sets them in the executor pods that it creates"
        )
    numbered = {name: value for name, value in environment.items() if name.startswith(_JAVA_OPTION)}
    options = [numbered[name] for name in sorted(numbered, key=lambda name: int(name.removeprefix(_JAVA_OPTION)))]
    home, heap = environment.get("JAVA_HOME"), environment["SPARK_EXECUTOR_MEMORY"]
    return [
        str(Path(home, "bin", "java")) if home else "java",
        *options,
        f"-Xms{heap}",
        f"-Xmx{heap}",
        "-cp",
        f"{spark_home}/jars/*",
        _MAIN,
        *(word for flag, name in _FLAGS.items() for word in (flag, environment[name])),
    ]


def main() -> int:
    """Replace this process by the executor."""
    import pyspark  # noqa: PLC0415 - only for its path

    try:
        words = command(os.environ, Path(pyspark.__file__).parent)
    except VariableMissing as error:
        print(f"executor: {error}", file=sys.stderr)  # noqa: T201 - the pod's log
        return 2
    return os.execvp(words[0], words)  # noqa: S606 - no shell is involved; does not return


if __name__ == "__main__":
    sys.exit(main())
