"""The driver's pod. It has all in it that Spark is told, so that it is made in one piece. Pure.

The driver asks Kubernetes for executors; these have no rights at all. Both run as nobody in particular, with nothing to
write to but what is mounted.
"""

import json
from typing import Any

from flotilla_operator import unprivileged
from flotilla_operator.names import COMPONENT, GROUP
from flotilla_operator.pipelines.wish import (
    CHECKPOINT,
    CHECKPOINT_PATH,
    DRIVER,
    EXECUTOR,
    PIPELINE_LABEL,
    STREAM,
    Pipeline,
    digest,
    is_kept,
    memory_bytes,
)

PROGRESS_PORT = 4041
RUN, ATTEMPT, OF, MODE = (f"{GROUP}/{what}" for what in ("run", "attempt", "of", "mode"))
_HEAP = 0.6  # of a pod's memory; Python works in the rest
_APPLICATION = "/etc/flotilla/application"
_TLS = "/etc/flotilla/tls"
_KUBERNETES = "/var/run/secrets/kubernetes.io/serviceaccount"


def make(wanted: Pipeline, run: int, attempt: int) -> dict[str, Any]:
    """Make the pod of one attempt."""
    template = wanted.spec.get("template") or {}
    said = {RUN: str(run), ATTEMPT: str(attempt), OF: made_of(wanted), MODE: wanted.mode}
    if wanted.checkpoint is not None:
        said[CHECKPOINT] = wanted.checkpoint
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": wanted.driver,
            "namespace": wanted.installation.namespace,
            "labels": {**(template.get("labels") or {}), **wanted.labels(DRIVER)},
            "annotations": {**(template.get("annotations") or {}), **said},
            "ownerReferences": [wanted.owner],
        },
        "spec": _spec(wanted, run),
    }


def made_of(wanted: Pipeline) -> str:
    """Tell what a driver is made of now: a stream whose driver is made of something else is begun again."""
    return digest(_spec(wanted, 0))  # whichever run it is


def arguments(wanted: Pipeline, run: int) -> list[str]:
    """Say what is run, to the program in the image that runs it."""
    application = wanted.application
    if "file" in application:
        return ["driver", application["file"], *wanted.arguments]
    if "configMap" in application:
        return ["driver", f"{_APPLICATION}/{application['configMap'].get('key', 'main.py')}", *wanted.arguments]
    name = application["builtIn"]
    told = [",".join(wanted.topics)]
    if name == "load":  # all attempts of a run are one load
        told += ["--run-id", f"{wanted.uid}/{run}"]
    else:
        told += ["--checkpoint", wanted.checkpoint_place] if wanted.checkpoint_place and is_kept(wanted.spec) else []
        told += [] if wanted.mode == STREAM else ["--once"]
    return ["driver", f"flotilla_spark.{name}", *told, *wanted.arguments]


def properties(wanted: Pipeline) -> dict[str, str]:
    """Say everything to Spark that is not the application's own."""
    spec, installation = wanted.spec, wanted.installation
    executors = spec.get("executors") or {}
    cores = executors.get("cores", 1)
    instances = executors.get("instances", 2) if is_kept(wanted.spec) else 0
    heap = f"{int(memory_bytes(spec, 'driver') * _HEAP) >> 20}m"
    common = {"spark.app.name": wanted.name, "spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC"}
    common |= {"spark.driver.memory": heap, "spark.executor.failuresValidityInterval": "1h"}  # streams live long
    common["spark.sql.shuffle.partitions"] = str(2 * cores * max(instances, 1))  # 200, Spark's own number, is for more
    common |= {name: _literally(value) for name, value in (spec.get("sparkConf") or {}).items()}
    if instances == 0:
        return {**common, "spark.master": f"local[{cores}]"}
    whole = memory_bytes(spec, "executors")
    return {
        **common,
        "spark.master": "k8s://https://kubernetes.default.svc",
        "spark.submit.deployMode": "client",
        "spark.driver.host": "$(POD_IP)",
        "spark.driver.bindAddress": "$(POD_IP)",
        "spark.driver.port": "7078",
        "spark.driver.blockManager.port": "7079",
        "spark.executor.instances": str(instances),
        "spark.executor.cores": str(cores),
        "spark.executor.memory": f"{int(whole * _HEAP) >> 20}m",
        "spark.executor.memoryOverhead": f"{(whole - int(whole * _HEAP)) >> 20}m",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",  # executors have none of their own to remove
        "spark.kubernetes.driver.service.deleteOnTermination": "false",  # nor is there a Service
        "spark.kubernetes.namespace": installation.namespace,
        "spark.kubernetes.driver.pod.name": wanted.driver,
        "spark.kubernetes.container.image": _image(wanted),
        "spark.kubernetes.container.image.pullPolicy": spec.get("imagePullPolicy") or installation.image_pull_policy,
        "spark.kubernetes.executor.request.cores": str(executors.get("cpu") or cores),
        "spark.kubernetes.executor.podTemplateFile": "/tmp/spark/executor.json",  # noqa: S108 - the pod's own
        "spark.kubernetes.executor.podTemplateContainerName": EXECUTOR,
        "spark.kubernetes.executor.disableConfigMap": "true",  # so the driver needs no rights to make any
        "spark.kubernetes.authenticate.executor.serviceAccountName": installation.executor_account,
    }


def executor_template(wanted: Pipeline) -> dict[str, Any]:
    """Say what executors have besides what Spark gives them."""
    spec: dict[str, Any] = {
        **_common(wanted),
        "serviceAccountName": wanted.installation.executor_account,
        "containers": [
            {
                "name": EXECUTOR,
                "securityContext": unprivileged.CONTAINER,
                "env": _env(wanted),
                "volumeMounts": _mounts(wanted),
            }
        ],
        "volumes": _volumes(wanted),
    }
    if wanted.is_on_one_node:
        with_driver = {"matchLabels": {COMPONENT: DRIVER, PIPELINE_LABEL: wanted.name}}
        term = {"labelSelector": with_driver, "topologyKey": "kubernetes.io/hostname"}
        spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    template = wanted.spec.get("template") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "labels": {**(template.get("labels") or {}), **wanted.labels(EXECUTOR)},
            "annotations": dict(template.get("annotations") or {}),
        },
        "spec": spec,
    }


def _spec(wanted: Pipeline, run: int) -> dict[str, Any]:
    spec, installation = wanted.spec, wanted.installation
    asked = spec.get("driver") or {}
    memory = asked.get("memory", "2Gi")
    environment = [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},  # before those that speak of it
        {"name": "SPARK_PROPERTIES", "value": json.dumps(properties(wanted), sort_keys=True)},
        {"name": "SPARK_EXECUTOR_TEMPLATE", "value": _literally(json.dumps(executor_template(wanted), sort_keys=True))},
        {"name": "FLOTILLA_PROGRESS_PORT", "value": str(PROGRESS_PORT)},
        *_env(wanted),
    ]
    return {
        **_common(wanted),
        "restartPolicy": "Never",  # attempts are counted, and spaced out, by the operator
        "serviceAccountName": installation.driver_account,
        "terminationGracePeriodSeconds": 30,
        "containers": [
            {
                "name": DRIVER,
                "image": _image(wanted),
                "imagePullPolicy": spec.get("imagePullPolicy") or installation.image_pull_policy,
                "args": [_literally(one) for one in arguments(wanted, run)],
                "securityContext": unprivileged.CONTAINER,
                "env": environment,
                "ports": [{"name": "progress", "containerPort": PROGRESS_PORT}],
                "resources": {
                    "requests": {"cpu": asked.get("cpu", "500m"), "memory": memory},
                    "limits": {"memory": memory},
                },
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [
                    *_mounts(wanted),
                    {"name": "kubernetes", "mountPath": _KUBERNETES, "readOnly": True},
                    *_application_mounts(wanted),
                ],
            }
        ],
        "volumes": [*_volumes(wanted), _kubernetes_volume(), *_application_volumes(wanted)],
    }


def _common(wanted: Pipeline) -> dict[str, Any]:
    template, installation = wanted.spec.get("template") or {}, wanted.installation
    secrets = template.get("imagePullSecrets") or [{"name": name} for name in installation.image_pull_secrets]
    optional = {
        "imagePullSecrets": secrets,
        "nodeSelector": template.get("nodeSelector"),
        "tolerations": template.get("tolerations"),
        "priorityClassName": template.get("priorityClassName"),
    }
    return {**unprivileged.POD, **{key: value for key, value in optional.items() if value}}


def _literally(text: str) -> str:
    """Write a text so that Kubernetes leaves it as it is: it would put variables in where $(NAME) stands."""
    return text.replace("$", "$$")


def _image(wanted: Pipeline) -> str:
    return str(wanted.spec.get("image") or wanted.installation.image)


def _env(wanted: Pipeline) -> list[dict[str, Any]]:
    values = {"FLOTILLA_URL": wanted.installation.url, "FLOTILLA_PIPELINE": wanted.name}
    if wanted.installation.tls_secret is not None:
        values["FLOTILLA_TLS_CA"] = f"{_TLS}/ca.crt"
    if wanted.topics:
        values["FLOTILLA_TOPICS"] = ",".join(wanted.topics)
    if wanted.checkpoint_place is not None:
        values["FLOTILLA_CHECKPOINT"] = wanted.checkpoint_place
    found: list[dict[str, Any]] = [{"name": name, "value": _literally(value)} for name, value in values.items()]
    token = wanted.spec.get("token")
    if token is not None:
        reference = {"name": token["secretName"], "key": token.get("key", "token")}
        found.append({"name": "FLOTILLA_TOKEN", "valueFrom": {"secretKeyRef": reference}})
    return [*found, *(wanted.spec.get("env") or ())]


def _mounts(wanted: Pipeline) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - the pod's own
    if wanted.claim is not None:
        found.append({"name": "checkpoint", "mountPath": CHECKPOINT_PATH})
    if wanted.installation.tls_secret is not None:
        found.append({"name": "tls", "mountPath": _TLS, "readOnly": True})
    return found + [
        {"name": f"volume-{at}", "mountPath": one["mountPath"], "readOnly": bool(one.get("readOnly"))}
        for at, one in enumerate(wanted.spec.get("volumes") or ())
    ]


def _volumes(wanted: Pipeline) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    if wanted.claim is not None:
        found.append({"name": "checkpoint", "persistentVolumeClaim": {"claimName": wanted.claim}})
    tls = wanted.installation.tls_secret
    if tls is not None:
        items = [{"key": "ca.crt", "path": "ca.crt"}]  # the keys beside it are not for applications
        found.append({"name": "tls", "secret": {"secretName": tls, "defaultMode": 0o440, "items": items}})
    return found + [
        {"name": f"volume-{at}", "persistentVolumeClaim": {"claimName": one["claimName"]}}
        for at, one in enumerate(wanted.spec.get("volumes") or ())
    ]


def _application_mounts(wanted: Pipeline) -> list[dict[str, Any]]:
    if "configMap" not in wanted.application:
        return []
    return [{"name": "application", "mountPath": _APPLICATION, "readOnly": True}]


def _application_volumes(wanted: Pipeline) -> list[dict[str, Any]]:
    if "configMap" not in wanted.application:
        return []
    return [{"name": "application", "configMap": {"name": wanted.application["configMap"]["name"]}}]


def _kubernetes_volume() -> dict[str, Any]:
    """What a pod needs to speak with Kubernetes, as Kubernetes itself would mount it."""
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    return {"name": "kubernetes", "projected": {"defaultMode": 0o440, "sources": sources}}
