"""The driver pod, with the whole configuration of Spark, and the claim of the checkpoint. Pure.

The driver creates executor pods; executors have no permissions. Both run without privileges, and can write only to
mounted volumes.
"""

import json
from typing import Any

from flotilla_operator import pod_security
from flotilla_operator.names import COMPONENT, GROUP
from flotilla_operator.pipelines.spec import (
    CHECKPOINT,
    CHECKPOINT_PATH,
    DELETE,
    PIPELINE_LABEL,
    SPARK_DRIVER,
    SPARK_EXECUTOR,
    STREAM,
    PipelineSpec,
    digest,
    has_stored_output,
    memory_bytes,
    runs_in_driver_only,
)

PROGRESS_PORT = 4041
RUN, ATTEMPT, SPEC_DIGEST, MODE = (f"{GROUP}/{what}" for what in ("run", "attempt", "of", "mode"))
_HEAP = 0.6  # share of the JVM in the memory of a pod; Python uses the rest
_APPLICATION = "/etc/flotilla/application"
_TLS = "/etc/flotilla/tls"
_KUBERNETES = "/var/run/secrets/kubernetes.io/serviceaccount"


def make(desired: PipelineSpec, run: int, attempt: int) -> dict[str, Any]:
    """Make the driver pod of one attempt."""
    template = desired.spec.get("template") or {}
    annotations = {RUN: str(run), ATTEMPT: str(attempt), SPEC_DIGEST: spec_digest(desired), MODE: desired.mode}
    if desired.checkpoint is not None:
        annotations[CHECKPOINT] = desired.checkpoint
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": desired.driver,
            "namespace": desired.installation.namespace,
            "labels": {**(template.get("labels") or {}), **desired.labels(SPARK_DRIVER)},
            "annotations": {**(template.get("annotations") or {}), **annotations},
            "ownerReferences": [desired.owner],
        },
        "spec": _spec(desired, run),
    }


def make_claim(desired: PipelineSpec) -> dict[str, Any] | None:
    """Make the claim of the checkpoint, if the spec has a size. With the policy Delete, the Pipeline owns it."""
    checkpoint = desired.spec.get("checkpoint") or {}
    volume = checkpoint.get("volume") or {}
    if "size" not in volume:
        return None
    spec: dict[str, Any] = {
        "accessModes": [volume.get("accessMode", "ReadWriteOnce")],
        "resources": {"requests": {"storage": volume["size"]}},
    }
    if volume.get("storageClass"):
        spec["storageClassName"] = volume["storageClass"]
    is_ours = checkpoint.get("deletionPolicy") == DELETE
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": desired.claim,
            "namespace": desired.installation.namespace,
            "labels": desired.labels(SPARK_DRIVER),
            "ownerReferences": [desired.owner] if is_ours else [],
        },
        "spec": spec,
    }


def spec_digest(desired: PipelineSpec) -> str:
    """Return the digest of the pod spec, the same for all runs.

    If a driver has another digest, a stream is restarted, and so is a batch whose driver is pending.
    """
    return digest(_spec(desired, 0))


def arguments(desired: PipelineSpec, run: int) -> list[str]:
    """Return the arguments of the container."""
    application = desired.application
    if "file" in application:
        return ["driver", application["file"], *desired.arguments]
    if "configMap" in application:
        return ["driver", f"{_APPLICATION}/{application['configMap'].get('key', 'main.py')}", *desired.arguments]
    name = application["builtIn"]
    passed = [",".join(desired.topics)]
    if name == "load":  # all attempts of a run share one load
        passed += ["--run-id", f"{desired.uid}/{run}"]
    else:
        passed += (
            ["--checkpoint", desired.checkpoint_location]
            if desired.checkpoint_location and has_stored_output(desired.spec)
            else []
        )
        passed += [] if desired.mode == STREAM else ["--once"]
    return ["driver", f"flotilla_spark.{name}", *passed, *desired.arguments]


def properties(desired: PipelineSpec) -> dict[str, str]:
    """Return the Spark properties."""
    spec, installation = desired.spec, desired.installation
    executors = spec.get("executors") or {}
    cores = executors.get("cores", 1)
    instances = 0 if runs_in_driver_only(desired.spec) else executors.get("instances", 2)
    heap = f"{int(memory_bytes(spec, 'driver') * _HEAP) >> 20}m"
    common = {"spark.app.name": desired.name, "spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC"}
    common |= {"spark.driver.memory": heap, "spark.executor.failuresValidityInterval": "1h"}  # streams run for long
    common["spark.sql.shuffle.partitions"] = str(
        2 * cores * max(instances, 1)
    )  # Spark's default of 200 is for large clusters
    common |= {name: _escape(value) for name, value in (spec.get("sparkConf") or {}).items()}
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
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",  # executors have no claims
        "spark.kubernetes.driver.service.deleteOnTermination": "false",  # there is no Service
        "spark.kubernetes.namespace": installation.namespace,
        "spark.kubernetes.driver.pod.name": desired.driver,
        "spark.kubernetes.container.image": _image(desired),
        "spark.kubernetes.container.image.pullPolicy": spec.get("imagePullPolicy") or installation.image_pull_policy,
        "spark.kubernetes.executor.request.cores": str(executors.get("cpu") or cores),
        "spark.kubernetes.executor.podTemplateFile": "/tmp/spark/executor.json",  # noqa: S108 - the pod's own
        "spark.kubernetes.executor.podTemplateContainerName": SPARK_EXECUTOR,
        "spark.kubernetes.executor.disableConfigMap": "true",  # the driver has no permission to create one
        "spark.kubernetes.authenticate.executor.serviceAccountName": installation.executor_account,
    }


def executor_template(desired: PipelineSpec) -> dict[str, Any]:
    """Return the pod template of executors, to which Spark adds its own settings."""
    spec: dict[str, Any] = {
        **_common(desired),
        "serviceAccountName": desired.installation.executor_account,
        "containers": [
            {
                "name": SPARK_EXECUTOR,
                "securityContext": pod_security.CONTAINER_SECURITY_CONTEXT,
                "env": _env(desired),
                "volumeMounts": _mounts(desired),
            }
        ],
        "volumes": _volumes(desired),
    }
    if desired.is_on_one_node:
        with_driver = {"matchLabels": {COMPONENT: SPARK_DRIVER, PIPELINE_LABEL: desired.name}}
        term = {"labelSelector": with_driver, "topologyKey": "kubernetes.io/hostname"}
        spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    template = desired.spec.get("template") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "labels": {**(template.get("labels") or {}), **desired.labels(SPARK_EXECUTOR)},
            "annotations": dict(template.get("annotations") or {}),
        },
        "spec": spec,
    }


def _spec(desired: PipelineSpec, run: int) -> dict[str, Any]:
    spec, installation = desired.spec, desired.installation
    resources = spec.get("driver") or {}
    memory = resources.get("memory", "2Gi")
    environment = [
        {
            "name": "POD_IP",
            "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
        },  # before the variables that refer to it
        {"name": "SPARK_PROPERTIES", "value": json.dumps(properties(desired), sort_keys=True)},
        {"name": "SPARK_EXECUTOR_TEMPLATE", "value": _escape(json.dumps(executor_template(desired), sort_keys=True))},
        {"name": "FLOTILLA_PROGRESS_PORT", "value": str(PROGRESS_PORT)},
        *_env(desired),
    ]
    return {
        **_common(desired),
        "restartPolicy": "Never",  # the operator counts and delays attempts
        "serviceAccountName": installation.driver_account,
        "terminationGracePeriodSeconds": 30,
        "containers": [
            {
                "name": SPARK_DRIVER,
                "image": _image(desired),
                "imagePullPolicy": spec.get("imagePullPolicy") or installation.image_pull_policy,
                "args": [_escape(one) for one in arguments(desired, run)],
                "securityContext": pod_security.CONTAINER_SECURITY_CONTEXT,
                "env": environment,
                "ports": [{"name": "progress", "containerPort": PROGRESS_PORT}],
                "resources": {
                    "requests": {"cpu": resources.get("cpu", "500m"), "memory": memory},
                    "limits": {"memory": memory},
                },
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [
                    *_mounts(desired),
                    {"name": "kubernetes", "mountPath": _KUBERNETES, "readOnly": True},
                    *_application_mounts(desired),
                ],
            }
        ],
        "volumes": [*_volumes(desired), _kubernetes_volume(), *_application_volumes(desired)],
    }


def _common(desired: PipelineSpec) -> dict[str, Any]:
    template, installation = desired.spec.get("template") or {}, desired.installation
    secrets = template.get("imagePullSecrets") or [{"name": name} for name in installation.image_pull_secrets]
    optional = {
        "imagePullSecrets": secrets,
        "nodeSelector": template.get("nodeSelector"),
        "tolerations": template.get("tolerations"),
        "priorityClassName": template.get("priorityClassName"),
    }
    return {**pod_security.POD_SPEC, **{key: value for key, value in optional.items() if value}}


def _escape(text: str) -> str:
    """Escape a text for Kubernetes, which would expand $(NAME)."""
    return text.replace("$", "$$")


def _image(desired: PipelineSpec) -> str:
    return str(desired.spec.get("image") or desired.installation.image)


def _env(desired: PipelineSpec) -> list[dict[str, Any]]:
    values = {"FLOTILLA_URL": desired.installation.url, "FLOTILLA_PIPELINE": desired.name}
    if desired.installation.tls_secret is not None:
        values["FLOTILLA_TLS_CA"] = f"{_TLS}/ca.crt"
    if desired.topics:
        values["FLOTILLA_TOPICS"] = ",".join(desired.topics)
    if desired.checkpoint_location is not None:
        values["FLOTILLA_CHECKPOINT"] = desired.checkpoint_location
    found: list[dict[str, Any]] = [{"name": name, "value": _escape(value)} for name, value in values.items()]
    token = desired.spec.get("token")
    if token is not None:
        reference = {"name": token["secretName"], "key": token.get("key", "token")}
        found.append({"name": "FLOTILLA_TOKEN", "valueFrom": {"secretKeyRef": reference}})
        source = f"key '{reference['key']}' of Secret {reference['name']}"  # for error messages
        found.append({"name": "FLOTILLA_TOKEN_SOURCE", "value": source})
    return [*found, *(desired.spec.get("env") or ())]


def _mounts(desired: PipelineSpec) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - the pod's own
    if desired.claim is not None:
        found.append({"name": "checkpoint", "mountPath": CHECKPOINT_PATH})
    if desired.installation.tls_secret is not None:
        found.append({"name": "tls", "mountPath": _TLS, "readOnly": True})
    return found + [
        {"name": f"volume-{at}", "mountPath": one["mountPath"], "readOnly": bool(one.get("readOnly"))}
        for at, one in enumerate(desired.spec.get("volumes") or ())
    ]


def _volumes(desired: PipelineSpec) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    if desired.claim is not None:
        found.append({"name": "checkpoint", "persistentVolumeClaim": {"claimName": desired.claim}})
    tls = desired.installation.tls_secret
    if tls is not None:
        items = [{"key": "ca.crt", "path": "ca.crt"}]  # applications do not get the private key
        found.append({"name": "tls", "secret": {"secretName": tls, "defaultMode": 0o440, "items": items}})
    return found + [
        {"name": f"volume-{at}", "persistentVolumeClaim": {"claimName": one["claimName"]}}
        for at, one in enumerate(desired.spec.get("volumes") or ())
    ]


def _application_mounts(desired: PipelineSpec) -> list[dict[str, Any]]:
    if "configMap" not in desired.application:
        return []
    return [{"name": "application", "mountPath": _APPLICATION, "readOnly": True}]


def _application_volumes(desired: PipelineSpec) -> list[dict[str, Any]]:
    if "configMap" not in desired.application:
        return []
    return [{"name": "application", "configMap": {"name": desired.application["configMap"]["name"]}}]


def _kubernetes_volume() -> dict[str, Any]:
    """Volume with the token and the CA of the API of Kubernetes, as Kubernetes itself would mount it."""
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    return {"name": "kubernetes", "projected": {"defaultMode": 0o440, "sources": sources}}
