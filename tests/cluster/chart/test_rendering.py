"""Manifests that the chart renders, and values that it rejects."""

import base64
import dataclasses
import json
from typing import Any

import pytest
import yaml

from cluster.harness.images import CHART
from flotilla import __version__
from flotilla_broker.settings import Settings as BrokerSettings
from flotilla_manager.settings import Settings as ManagerSettings

from .conftest import Chart, Manifest, Rendered, RenderError

SERVERS = ("flotilla-broker", "flotilla-writer", "flotilla-reader")
MANAGERS = ("flotilla-writer", "flotilla-reader")
HOOKS = {"flotilla-test", "flotilla-upgrade", "flotilla-delete"}
PODS = {*SERVERS, *HOOKS, "flotilla-operator", "flotilla-postgresql"}
# All optional features at once: rules for every pod must hold for these pods, too.
EVERYTHING: Manifest = {
    "readers": {"autoscaling": {"enabled": True}},
    "networkPolicy": {"enabled": True},
    "serviceMonitor": {"enabled": True},
    "tls": {"existingSecret": "certificates"},
}


@pytest.fixture(scope="module", params=["defaults", "everything"])
def rendered(request: pytest.FixtureRequest, chart: Chart, defaults: Rendered) -> Rendered:
    return defaults if request.param == "defaults" else chart.render(EVERYTHING)


# -- objects ------------------------------------------------------------------------------------------------------


def test_default_values_render_all_components(defaults: Rendered) -> None:
    hooks = {one["metadata"]["name"] for one in defaults.manifests if is_hook(one)}
    assert hooks == {*HOOKS, "q-flotilla-upgrade"}
    assert {(one["kind"], one["metadata"]["name"]) for one in defaults.manifests if not is_hook(one)} == {
        ("Broker", "flotilla-broker"),
        ("StatefulSet", "flotilla-broker"),
        ("Service", "flotilla-broker"),
        ("PodDisruptionBudget", "flotilla-broker"),
        ("ConfigMap", "flotilla-broker"),
        ("ServiceAccount", "flotilla-broker"),
        ("Deployment", "flotilla-operator"),
        ("ServiceAccount", "flotilla-operator"),
        ("Service", "flotilla-operator"),
        ("Role", "flotilla-operator"),
        ("RoleBinding", "flotilla-operator"),
        ("ClusterRole", "q-flotilla-operator"),
        ("ClusterRoleBinding", "q-flotilla-operator"),
        ("Deployment", "flotilla-writer"),
        ("Service", "flotilla-writer"),
        ("Service", "flotilla-reader"),
        ("Deployment", "flotilla-reader"),
        ("Service", "flotilla"),
        ("PodDisruptionBudget", "flotilla-reader"),
        ("StatefulSet", "flotilla-postgresql"),
        ("Service", "flotilla-postgresql"),
        ("ConfigMap", "flotilla-postgresql"),
        ("Secret", "flotilla-secret"),
        ("Secret", "flotilla-database"),
        ("ServiceAccount", "flotilla"),
        ("ServiceAccount", "flotilla-spark"),
        ("Role", "flotilla-spark"),
        ("RoleBinding", "flotilla-spark"),
        ("Ingress", "flotilla"),
    }


def is_hook(manifest: Manifest) -> bool:
    """Return whether a resource exists only during a Helm operation."""
    return "helm.sh/hook" in manifest["metadata"].get("annotations", {})


@pytest.mark.parametrize(
    ("release", "values", "name"),
    [
        ("flotilla", {}, "flotilla"),
        ("my-flotilla", {}, "my-flotilla"),
        ("prod", {}, "prod-flotilla"),
        ("prod", {"fullnameOverride": "queue"}, "queue"),
        ("prod", {"nameOverride": "log"}, "prod-log"),
    ],
)
def test_names_start_with_the_release_name(chart: Chart, release: str, values: Manifest, name: str) -> None:
    rendered = chart.render(values, release=release)
    assert rendered.get("StatefulSet", f"{name}-broker")["spec"]["serviceName"] == f"{name}-broker"
    assert rendered.env(f"{name}-reader")["FLOTILLA_WRITER"] == f"http://{name}-writer.q.svc:8080"
    assert all(one["metadata"]["name"].removeprefix("q-").startswith(name) for one in rendered.manifests)


def test_two_releases_in_a_namespace_share_no_names_and_selectors(chart: Chart) -> None:
    one, other = chart.render(release="a"), chart.render(release="b")
    assert not one.names & other.names
    assert _selector(one, "a-flotilla-broker") != _selector(other, "b-flotilla-broker")


def test_longest_names_fit_into_labels(chart: Chart) -> None:
    rendered = chart.render({"nameOverride": "x" * 40}, release="r" * 53)
    longest = max((one["metadata"]["name"] for one in rendered.manifests if "Cluster" not in one["kind"]), key=len)
    assert len(longest) <= 63 - len("-0123456789")  # a StatefulSet's pods have a label with its name and revision


def test_selectors_contain_only_stable_labels(rendered: Rendered) -> None:
    common = {f"app.kubernetes.io/{what}" for what in ("name", "instance", "component")}
    for one in rendered.manifests:
        expected = common | ({"flotilla.dev/broker"} if one["metadata"]["name"] == "flotilla-broker" else set())
        if one["kind"] in {"Deployment", "StatefulSet"}:
            assert set(one["spec"]["selector"]["matchLabels"]) == expected
            assert expected <= set(one["spec"]["template"]["metadata"]["labels"])
        if one["kind"] == "Service":
            assert set(one["spec"]["selector"]) == expected


def test_all_objects_have_the_recommended_labels(rendered: Rendered) -> None:
    expected = {f"app.kubernetes.io/{what}" for what in ("name", "instance", "managed-by", "part-of")}
    for one in rendered.manifests:
        by_helm = (
            {"app.kubernetes.io/version"}
            if one["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
            else set()
        )
        assert expected | by_helm <= set(one["metadata"]["labels"]), one["metadata"]["name"]


def test_chart_version_is_not_part_of_pod_templates(defaults: Rendered) -> None:
    for one in defaults.manifests:
        if one["kind"] in {"Deployment", "StatefulSet"}:
            assert "helm.sh/chart" not in one["spec"]["template"]["metadata"]["labels"]
    postgresql = defaults.get("StatefulSet", "flotilla-postgresql")
    assert "app.kubernetes.io/version" not in postgresql["spec"]["template"]["metadata"]["labels"]


# -- pods ---------------------------------------------------------------------------------------------------------


def test_all_pods_run_unprivileged(rendered: Rendered) -> None:
    assert {name for name, _ in rendered.pods()} == PODS
    for name, pod in rendered.pods():
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == (999 if name == "flotilla-postgresql" else 10001)
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC", "initContainers"}
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["privileged"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
    for account in rendered.of_kind("ServiceAccount").values():
        assert account["automountServiceAccountToken"] is False


def test_only_pods_that_call_kubernetes_have_a_service_account_token(rendered: Rendered) -> None:
    """The operator and the hooks, each with its own service account."""
    callers = {name for name, pod in rendered.pods() if any("projected" in volume for volume in pod["volumes"])}
    assert callers == {"flotilla-operator", "flotilla-upgrade", "flotilla-delete"}
    for name, pod in rendered.pods():
        bound = [one for one in rendered.manifests if one["kind"].endswith("RoleBinding")]
        has_permissions = pod["serviceAccountName"] in {one["subjects"][0]["name"] for one in bound}
        assert has_permissions == (name in callers), name


def test_pods_have_no_service_link_variables(rendered: Rendered) -> None:
    """A Service called `flotilla` would become FLOTILLA_PORT=tcp://..., which is the name of a setting."""
    for name, pod in rendered.pods():
        assert pod["enableServiceLinks"] is False, name


def test_containers_have_resources_and_servers_have_probes(rendered: Rendered) -> None:
    for name, pod in rendered.pods():
        for container in pod["containers"]:
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}, name
            assert container["resources"]["limits"].keys() == {"memory"}, name
            if name not in HOOKS:
                assert container.keys() >= {"livenessProbe", "readinessProbe"}, name
            if name in {*SERVERS, "flotilla-postgresql"}:
                assert "startupProbe" in container, name


def test_liveness_and_readiness_probes_use_different_endpoints(rendered: Rendered) -> None:
    for name in SERVERS:
        (container,) = rendered.pod(name)["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
            request = container[probe]["httpGet"]
            assert request["path"] == path
            assert ports[request["port"]] == (8090 if name == "flotilla-broker" else 8080)


def test_pods_mount_exactly_their_volumes(rendered: Rendered) -> None:
    for name, pod in rendered.pods():
        volumes = {volume["name"] for volume in pod["volumes"]}
        if name in {"flotilla-broker", "flotilla-postgresql"}:
            volumes.add("data")
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes, name
            assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}  # noqa: S108 - in a pod


def test_image_is_taken_from_values(chart: Chart) -> None:
    image = {"registry": "registry.example.com/team", "repository": "queue", "tag": "1.2", "pullPolicy": "Always"}
    values = {"image": image, "imagePullSecrets": [{"name": "key"}], "postgresql": {"image": "example.com/pg:16"}}
    for name, pod in chart.render(values).pods():
        (container,) = pod["containers"]
        expected = "example.com/pg:16" if name == "flotilla-postgresql" else "registry.example.com/team/queue:1.2"
        assert container["image"] == expected
        assert container["imagePullPolicy"] == ("IfNotPresent" if name == "flotilla-postgresql" else "Always")
        assert pod["imagePullSecrets"] == [{"name": "key"}]


def test_default_image_tag_is_the_chart_version(defaults: Rendered) -> None:
    assert defaults.pod("flotilla-broker")["containers"][0]["image"] == f"flotilla:{__version__}"


def test_image_digest_overrides_the_tag(chart: Chart) -> None:
    digest = "sha256:" + "0123456789abcdef" * 4
    rendered = chart.render({"image": {"tag": "1.2", "digest": digest}})
    assert rendered.pod("flotilla-broker")["containers"][0]["image"] == f"flotilla@{digest}"


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("brokers", "flotilla-broker"),
        ("operator", "flotilla-operator"),
        ("writer", "flotilla-writer"),
        ("readers", "flotilla-reader"),
        ("postgresql", "flotilla-postgresql"),
    ],
)
def test_scheduling_resources_and_metadata_of_pods_are_taken_from_values(chart: Chart, part: str, name: str) -> None:
    scheduling = {
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "queue", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
    }
    resources = {"requests": {"cpu": "2", "memory": "3Gi"}, "limits": {"memory": "4Gi"}}
    pod_metadata = {"podAnnotations": {"note": 'a "quoted": text'}, "podLabels": {"team": "queue"}}
    rendered = chart.render({part: {**scheduling, **pod_metadata, "resources": resources}})
    pod = rendered.pod(name)
    assert {key: pod[key] for key in scheduling} == scheduling
    assert pod["containers"][0]["resources"] == resources
    made_by = rendered.of_kind("StatefulSet").get(name) or rendered.of_kind("Deployment")[name]
    metadata = made_by["spec"]["template"]["metadata"]
    assert metadata["annotations"]["note"] == 'a "quoted": text'
    assert metadata["labels"]["team"] == "queue"


def test_brokers_and_readers_are_spread_over_hosts_and_zones(chart: Chart, defaults: Rendered) -> None:
    for name in ("flotilla-broker", "flotilla-reader"):
        constraints = defaults.pod(name)["topologySpreadConstraints"]
        assert [one["topologyKey"] for one in constraints] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
        assert {one["whenUnsatisfiable"] for one in constraints} == {"ScheduleAnyway"}
        for one in constraints:
            assert one["labelSelector"]["matchLabels"].items() <= _selector(defaults, name).items()
    strict = chart.render({"brokers": {"spread": {"hosts": "DoNotSchedule", "zones": "Off"}}})
    (constraint,) = strict.pod("flotilla-broker")["topologySpreadConstraints"]
    assert (constraint["topologyKey"], constraint["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "DoNotSchedule")


# -- servers ------------------------------------------------------------------------------------------------------


def test_brokers_know_their_advertised_address_and_the_managers(defaults: Rendered) -> None:
    env = defaults.env("flotilla-broker")
    assert env["FLOTILLA_ADVERTISE_HOST"] == "$(POD_NAME).flotilla-broker.$(POD_NAMESPACE).svc"
    assert env["FLOTILLA_MANAGERS"] == "http://flotilla-writer.q.svc:8080,http://flotilla-reader.q.svc:8080"
    (mount,) = [one for one in _mounts(defaults, "flotilla-broker") if one["name"] == "data"]
    assert env["FLOTILLA_DATA"] == mount["mountPath"] + "/data"


def test_managers_know_their_role_and_url(defaults: Rendered) -> None:
    writer, reader = (defaults.env(name) for name in MANAGERS)
    assert (writer["FLOTILLA_ROLE"], writer["FLOTILLA_URL"]) == ("writer", "http://flotilla-writer.q.svc:8080")
    assert (reader["FLOTILLA_ROLE"], reader["FLOTILLA_URL"]) == ("reader", "http://$(POD_IP):8080")
    assert reader["FLOTILLA_WRITER"] == writer["FLOTILLA_URL"]
    assert {writer["FLOTILLA_NAME"], reader["FLOTILLA_NAME"]} == {"$(POD_NAME)"}


def test_variables_refer_only_to_earlier_variables(rendered: Rendered) -> None:
    """Kubernetes expands only variables that were defined before."""
    for name in SERVERS:
        known: set[str] = set()
        for variable, value in rendered.env(name).items():
            if isinstance(value, str) and "$(" in value:
                assert value.split("$(")[1].split(")")[0] in known, (name, variable)
            known.add(variable)


@pytest.mark.parametrize(("replicas", "brokers_min"), [(1, "1"), (2, "2"), (3, "3"), (5, "3")])
def test_minimal_number_of_brokers_is_three_or_all(chart: Chart, replicas: int, brokers_min: str) -> None:
    rendered = chart.render({"brokers": {"replicas": replicas}})
    assert rendered.get("StatefulSet", "flotilla-broker")["spec"]["replicas"] == replicas
    assert {rendered.env(name)["FLOTILLA_BROKERS_MIN"] for name in MANAGERS} == {brokers_min}


def test_config_values_become_environment_variables(chart: Chart) -> None:
    brokers = {"segment_bytes": 67_108_864, "log_bytes_max": "9GiB", "heartbeat_s": 0.25, "log_level": "debug"}
    rendered = chart.render({"brokers": {"config": brokers}, "managers": {"config": {"wait_ms_max": 1_000_000}}})
    env = rendered.env("flotilla-broker")
    assert env["FLOTILLA_SEGMENT_BYTES"] == "67108864"
    assert env["FLOTILLA_LOG_BYTES_MAX"] == "9GiB"
    assert env["FLOTILLA_HEARTBEAT_S"] == "0.25"
    assert env["FLOTILLA_LOG_LEVEL"] == "debug"
    assert {rendered.env(name)["FLOTILLA_WAIT_MS_MAX"] for name in MANAGERS} == {"1000000"}


@pytest.mark.parametrize(
    ("settings", "part", "pods"),
    [(BrokerSettings, "brokers", ("flotilla-broker",)), (ManagerSettings, "managers", MANAGERS)],
)
def test_every_server_setting_is_set_by_the_chart_or_by_values(
    chart: Chart, settings: type[BrokerSettings | ManagerSettings], part: str, pods: tuple[str, ...]
) -> None:
    names = {one.name for one in dataclasses.fields(settings)}
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    open_to_users = set(schema["properties"][part]["properties"]["config"]["properties"])
    everything = chart.render(EVERYTHING)
    prefix = "FLOTILLA_"
    by_chart = {one.removeprefix(prefix).lower() for pod in pods for one in everything.env(pod) if prefix in one}
    # Correct by default, set in another way, or of no use in a pod. The operator sets racks.
    not_set = {"advertise_port", "advertise_peer_host", "advertise_peer_port", "secret", "rack"}
    not_set |= {"database", "own_port", "reuse_port"}
    assert open_to_users <= names
    assert not open_to_users & by_chart
    assert names - by_chart - open_to_users <= not_set, "values.schema.json lacks settings that servers have"
    assert by_chart <= names


def test_extra_environment_variables_can_be_added(chart: Chart) -> None:
    extra = [{"name": "TZ", "value": "UTC"}, {"name": "FLOTILLA_LOG_FORMAT", "value": "human"}]
    rendered = chart.render({part: {"extraEnv": extra} for part in ("brokers", "writer", "readers")})
    for name in SERVERS:
        assert rendered.env(name)["TZ"] == "UTC"
        assert rendered.env(name)["FLOTILLA_LOG_FORMAT"] == "human"


def test_servers_are_started_as_arguments_of_the_entrypoint(defaults: Rendered) -> None:
    for name in SERVERS:
        (container,) = defaults.pod(name)["containers"]
        assert "command" not in container
        module = "flotilla_broker" if name == "flotilla-broker" else "flotilla_manager"
        assert container["args"] == ["python3", "-m", module]


# -- durability ---------------------------------------------------------------------------------------------------


def test_volumes_are_retained(rendered: Rendered) -> None:
    for one in rendered.of_kind("StatefulSet").values():
        retain = {"whenDeleted": "Retain", "whenScaled": "Retain"}
        assert one["spec"]["persistentVolumeClaimRetentionPolicy"] == retain


def test_secrets_are_kept_and_have_enough_characters(defaults: Rendered) -> None:
    for one in defaults.of_kind("Secret").values():
        assert one["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    secret = defaults.get("Secret", "flotilla-secret")["data"]["secret"]
    assert len(base64.b64decode(secret)) == 48
    database = {key: base64.b64decode(value).decode() for key, value in _data(defaults, "flotilla-database").items()}
    host = "flotilla-postgresql.q.svc:5432"
    assert database["url"] == f"postgresql://flotilla:{database['password']}@{host}/flotilla"
    assert len(database["password"]) == 32
    assert database["password"].isalnum()


def test_storage_is_taken_from_values(chart: Chart, defaults: Rendered) -> None:
    storage = {"size": "2Ti", "storageClass": "fast"}
    rendered = chart.render({"brokers": {"storage": storage}, "postgresql": {"storage": storage}})
    for one in rendered.of_kind("StatefulSet").values():
        (claim,) = one["spec"]["volumeClaimTemplates"]
        assert claim["spec"]["storageClassName"] == "fast"
        assert claim["spec"]["resources"]["requests"]["storage"] == "2Ti"
    for one in defaults.of_kind("StatefulSet").values():
        (claim,) = one["spec"]["volumeClaimTemplates"]
        assert "storageClassName" not in claim["spec"]
        assert (
            "app.kubernetes.io/version" not in claim["metadata"]["labels"]
        )  # it is immutable, so an upgrade would fail


def test_brokers_start_in_parallel_and_are_replaced_by_the_operator(chart: Chart, defaults: Rendered) -> None:
    """Kubernetes replaces none by itself: the operator does, when all partitions stay available without the broker."""
    spec = defaults.get("StatefulSet", "flotilla-broker")["spec"]
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert defaults.pod("flotilla-broker")["terminationGracePeriodSeconds"] == 60
    assert defaults.get("Broker", "flotilla-broker")["spec"]["update"] == "Rolling"
    by_hand = chart.render({"brokers": {"update": "OnDelete"}})
    assert by_hand.get("Broker", "flotilla-broker")["spec"]["update"] == "OnDelete"


def test_cold_start_has_no_circular_wait(defaults: Rendered) -> None:
    """Brokers resolve each other and the writer before these are ready: the writer becomes ready only with brokers."""
    assert defaults.get("Service", "flotilla-broker")["spec"]["publishNotReadyAddresses"] is True
    assert defaults.get("Service", "flotilla-broker")["spec"]["clusterIP"] == "None"
    assert defaults.get("Service", "flotilla-writer")["spec"]["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in defaults.get("Service", "flotilla")["spec"]


def test_old_writer_stops_before_the_new_one_starts(defaults: Rendered) -> None:
    spec = defaults.get("Deployment", "flotilla-writer")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_rolling_update_of_readers_keeps_capacity(defaults: Rendered) -> None:
    spec = defaults.get("Deployment", "flotilla-reader")["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    (container,) = defaults.pod("flotilla-reader")["containers"]
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "5"]


def test_disruption_budgets_exist_for_brokers_and_for_several_readers(chart: Chart) -> None:
    few = chart.render({"readers": {"replicas": 1}})
    assert set(few.of_kind("PodDisruptionBudget")) == {"flotilla-broker"}
    many = chart.render({"readers": {"replicas": 1, "autoscaling": {"enabled": True, "minReplicas": 2}}})
    budgets = many.of_kind("PodDisruptionBudget")
    assert set(budgets) == {"flotilla-broker", "flotilla-reader"}
    for name, budget in budgets.items():
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["selector"]["matchLabels"].items() <= _selector(many, name).items()


# -- readers ------------------------------------------------------------------------------------------------------


def test_autoscaler_controls_only_the_readers(chart: Chart, defaults: Rendered) -> None:
    assert defaults.get("Deployment", "flotilla-reader")["spec"]["replicas"] == 2
    autoscaling = {"enabled": True, "minReplicas": 3, "maxReplicas": 7, "targetCPUUtilizationPercentage": 50}
    rendered = chart.render({"readers": {"autoscaling": autoscaling}})
    assert "replicas" not in rendered.get("Deployment", "flotilla-reader")["spec"]
    spec = rendered.get("HorizontalPodAutoscaler", "flotilla-reader")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (3, 7)
    assert spec["scaleTargetRef"]["name"] == "flotilla-reader"
    assert spec["metrics"][0]["resource"]["target"]["averageUtilization"] == 50


# -- secrets, TLS, the database -----------------------------------------------------------------------------------


def test_authentication_is_on_by_default(chart: Chart, defaults: Rendered) -> None:
    opened = chart.render({"auth": {"enabled": False}})
    for name in SERVERS:
        assert defaults.env(name)["FLOTILLA_AUTH"] == "on"
        assert opened.env(name)["FLOTILLA_AUTH"] == "off"
        assert opened.env(name)["FLOTILLA_SECRET_FILE"] == "/etc/flotilla/secret/secret"  # noqa: S105 - a path
    assert ("Secret", "flotilla-secret") in opened.names  # brokers authenticate each other with it


def test_existing_secret_is_used_instead_of_a_generated_one(chart: Chart) -> None:
    rendered = chart.render({"auth": {"existingSecret": "mine", "existingSecretKey": "word"}})
    assert set(rendered.of_kind("Secret")) == {"flotilla-database"}
    for name in (*SERVERS, "flotilla-test"):
        volume = _volume(rendered, name, "secret")
        assert (volume["secretName"], volume["items"]) == ("mine", [{"key": "word", "path": "secret"}])


def test_external_database_replaces_postgresql(chart: Chart) -> None:
    mine = {"existingSecret": "mine", "existingSecretKey": "dsn"}
    rendered = chart.render({"database": mine, "networkPolicy": {"enabled": True}})
    assert not [one for one in rendered.names if "postgresql" in one[1]]
    assert set(rendered.of_kind("Secret")) == {"flotilla-secret"}
    for name in MANAGERS:
        volume = _volume(rendered, name, "database")
        assert (volume["secretName"], volume["items"]) == ("mine", [{"key": "dsn", "path": "url"}])


def test_existing_secret_of_postgresql_is_used(chart: Chart) -> None:
    rendered = chart.render({"postgresql": {"existingSecret": "mine"}})
    assert set(rendered.of_kind("Secret")) == {"flotilla-secret"}
    for name in (*MANAGERS, "flotilla-postgresql"):
        assert _volume(rendered, name, "database")["secretName"] == "mine"


def test_postgresql_settings_are_arguments_and_its_user_changes_the_checksum(chart: Chart, defaults: Rendered) -> None:
    rendered = chart.render({"postgresql": {"config": {"max_connections": 2_000_000, "work_mem": "8MB"}, "uid": 70}})
    (container,) = rendered.pod("flotilla-postgresql")["containers"]
    assert container["args"] == ["--max_connections=2000000", "--work_mem=8MB"]
    assert "postgres:x:70:70:" in rendered.get("ConfigMap", "flotilla-postgresql")["data"]["passwd"]

    def checksum(found: Rendered) -> str:
        template = found.get("StatefulSet", "flotilla-postgresql")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    assert checksum(rendered) != checksum(defaults)


def test_servers_accept_only_tls_with_certificates(chart: Chart) -> None:
    rendered = chart.render({"tls": {"existingSecret": "certificates"}, "serviceMonitor": {"enabled": True}})
    for name in SERVERS:
        env = rendered.env(name)
        assert env["FLOTILLA_TLS_CERT"] == "/etc/flotilla/tls/tls.crt"
        assert _volume(rendered, name, "tls")["secretName"] == "certificates"
        (container,) = rendered.pod(name)["containers"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["scheme"] == "HTTPS"
        assert "http://" not in json.dumps(env)
    assert rendered.env("flotilla-broker")["FLOTILLA_PEER_CA"] == "/etc/flotilla/tls/ca.crt"
    assert rendered.env("flotilla-test")["FLOTILLA_URL"] == "https://flotilla.q.svc:80"
    for name, monitor in rendered.of_kind("ServiceMonitor").items():
        assert monitor["spec"]["endpoints"][0]["scheme"] == ("http" if name == "flotilla-operator" else "https")
    plain = chart.render({"tls": {"existingSecret": "certificates", "peers": False}})
    assert "FLOTILLA_PEER_CA" not in plain.env("flotilla-broker")


# -- ingress and services -----------------------------------------------------------------------------------------


def test_ingress_routes_only_to_the_public_port(rendered: Rendered) -> None:
    """The control API and metrics are on the other port."""
    (rule,) = rendered.get("Ingress", "flotilla")["spec"]["rules"]
    paths = {path["path"]: path["backend"]["service"] for path in rule["http"]["paths"]}
    assert paths == {
        "/admin": {"name": "flotilla-writer", "port": {"name": "public"}},
        "/": {"name": "flotilla", "port": {"name": "public"}},
    }
    for name in ("flotilla-writer", "flotilla-reader"):
        inner = {port["name"]: port for port in rendered.get("Service", name)["spec"]["ports"]}
        assert (inner["http"]["port"], inner["http"]["targetPort"]) == (8080, "api")
    for backend in paths.values():
        ports = {port["name"]: port for port in rendered.get("Service", backend["name"])["spec"]["ports"]}
        assert (ports["public"]["port"], ports["public"]["targetPort"]) == (80, "public")
    for name in MANAGERS:
        (container,) = rendered.pod(name)["containers"]
        listens = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert listens == {"api": 8080, "public": 8081}
        assert rendered.env(name)["FLOTILLA_PUBLIC_PORT"] == "8081"


def test_ingress_is_taken_from_values(chart: Chart, defaults: Rendered) -> None:
    spec = defaults.get("Ingress", "flotilla")["spec"]
    assert "ingressClassName" not in spec
    assert "host" not in spec["rules"][0]
    ingress = {
        "className": "nginx",
        "host": "queue.example.com",
        "tls": {"enabled": True},
        "annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "33m", "odd": 'yes: "no"'},
    }
    given = chart.render({"ingress": ingress}).get("Ingress", "flotilla")
    assert given["spec"]["ingressClassName"] == "nginx"
    assert given["spec"]["rules"][0]["host"] == "queue.example.com"
    assert given["spec"]["tls"] == [{"hosts": ["queue.example.com"], "secretName": "flotilla-ingress-tls"}]
    assert given["metadata"]["annotations"] == ingress["annotations"]
    assert not chart.render({"ingress": {"enabled": False}}).of_kind("Ingress")


def test_public_service_can_be_a_load_balancer(chart: Chart) -> None:
    rendered = chart.render({"service": {"type": "LoadBalancer", "annotations": {"internal": "true"}}})
    service = rendered.get("Service", "flotilla")
    assert service["spec"]["type"] == "LoadBalancer"
    assert [port["port"] for port in service["spec"]["ports"]] == [80], "the control API is not exposed"
    assert rendered.get("Service", "flotilla-reader")["spec"].get("type", "ClusterIP") == "ClusterIP"
    assert service["metadata"]["annotations"] == {"internal": "true"}


# -- network policies and monitoring --------------------------------------------------------------------------------


def test_network_policies_allow_only_the_needed_connections(chart: Chart, defaults: Rendered) -> None:
    assert not defaults.of_kind("NetworkPolicy")
    watcher = {"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}
    operator = {"podSelector": {"matchLabels": {"app": "operator"}}}
    policy = {"enabled": True, "metrics": [watcher], "apiClients": [operator], "brokerClients": []}
    policies = chart.render({"networkPolicy": policy}).of_kind("NetworkPolicy")
    rules = {name: _rules(policy) for name, policy in policies.items()}
    own = {"app.kubernetes.io/name": "flotilla", "app.kubernetes.io/instance": "flotilla"}
    ours = {"podSelector": {"matchLabels": own}}
    brokers = {"podSelector": {"matchLabels": {**own, "app.kubernetes.io/component": "broker"}}}
    assert rules["flotilla-broker"] == {"peer": [brokers], "client": [ours, watcher]}
    spark = {"key": "app.kubernetes.io/component", "operator": "NotIn", "values": ["spark-driver", "spark-executor"]}
    servers = {"podSelector": {"matchLabels": own, "matchExpressions": [spark]}}
    assert rules["flotilla-manager"] == {"public": None, "api": [servers, operator, watcher]}
    assert rules["flotilla-operator"] == {"health": [watcher]}
    assert rules["flotilla-spark"] == {"any": [ours]}
    (managers,) = rules["flotilla-postgresql"]["postgresql"]
    assert managers["podSelector"]["matchExpressions"][0]["values"] == ["writer", "reader"]


def test_service_monitors_cover_all_servers(chart: Chart, defaults: Rendered) -> None:
    assert not defaults.of_kind("ServiceMonitor")
    monitor = {"enabled": True, "labels": {"release": "prometheus"}, "interval": "15s"}
    rendered = chart.render({"serviceMonitor": monitor})
    assert set(rendered.of_kind("ServiceMonitor")) == {*SERVERS, "flotilla-operator"}
    services = list(rendered.of_kind("Service").values())
    for one in rendered.of_kind("ServiceMonitor").values():
        assert one["metadata"]["labels"]["release"] == "prometheus"
        (endpoint,) = one["spec"]["endpoints"]
        assert (endpoint["path"], endpoint["interval"]) == ("/metrics", "15s")
        wanted = one["spec"]["selector"]["matchLabels"].items()
        found = [
            each["metadata"]["name"]
            for each in services
            if wanted <= each["metadata"]["labels"].items()
            and endpoint["port"] in {port["name"] for port in each["spec"]["ports"]}
        ]
        assert found == [one["metadata"]["name"]]


# -- helm test, and notes -----------------------------------------------------------------------------------------


def test_helm_test_sends_records_through_the_readers(defaults: Rendered) -> None:
    pod = defaults.get("Pod", "flotilla-test")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert pod["spec"]["restartPolicy"] == "Never"
    (container,) = pod["spec"]["containers"]
    assert container["args"][:2] == ["sh", "-c"]
    for step in ("topics create", "produce", "consume", "topics delete"):
        assert f"ask {step}" in container["args"][2]
    assert defaults.env("flotilla-test")["FLOTILLA_URL"] == "http://flotilla.q.svc:80"


def test_notes_list_the_next_steps(notes: Chart) -> None:
    text = _notes(notes, {})
    assert "kubectl --namespace q exec deployment/flotilla-writer" in text
    assert "flotilla tokens create me" in text
    assert "$URL/topics" in text
    assert "URL=https://queue.example.com" in _notes(
        notes, {"ingress": {"host": "queue.example.com", "tls": {"enabled": True}}}
    )
    without = _notes(notes, {"auth": {"enabled": False}})
    assert "tokens create" not in without
    assert "Authorization" not in without


# -- the operator, hooks and CRDs -----------------------------------------------------------------------------------


def test_upgrade_hook_applies_the_crds(defaults: Rendered) -> None:
    """Helm leaves CRDs as they were at the first installation."""
    crds = defaults.get("ConfigMap", "flotilla-upgrade")["data"]
    for path in (CHART / "crds").glob("*.yaml"):
        assert yaml.safe_load(crds[path.name]) == yaml.safe_load(path.read_text(encoding="utf-8"))
    (container,) = defaults.pod("flotilla-upgrade")["containers"]
    for kind in ("statefulset", "service", "poddisruptionbudget"):
        assert f"{kind}/flotilla-broker" in container["args"], "objects of an older chart are kept"


def test_only_the_hook_creates_the_broker_if_its_crd_is_missing(chart: Chart, defaults: Rendered) -> None:
    """Helm looks up CRDs before hooks run, and would reject the upgrade."""
    upgraded = chart.render(upgrades=True)
    assert not upgraded.of_kind("Broker")
    (container,) = upgraded.pod("flotilla-upgrade")["containers"]
    assert container["args"][-2:] == ["--apply", "/files/broker"]
    (later,) = defaults.pod("flotilla-upgrade")["containers"]
    assert later["args"] == [*container["args"], "--only-change"], "Helm creates it if it can"
    made = yaml.safe_load(upgraded.get("ConfigMap", "flotilla-upgrade")["data"]["broker"])
    assert made == defaults.get("Broker", "flotilla-broker")
    assert made["metadata"]["annotations"]["meta.helm.sh/release-name"] == "flotilla", (
        "Helm manages it from the next upgrade on"
    )


def test_operator_role_has_no_wildcards_and_no_secrets(chart: Chart, defaults: Rendered) -> None:
    rules = defaults.get("Role", "flotilla-operator")["rules"]
    assert not any("*" in rule[key] for rule in rules for key in ("apiGroups", "resources", "verbs"))
    assert not any("secrets" in rule["resources"] for rule in rules)
    assert defaults.get("ClusterRole", "q-flotilla-operator")["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}
    ]
    for values in ({"operator": {"readNodes": False}}, {"brokers": {"rack": {"topologyKey": ""}}}):
        assert "q-flotilla-operator" not in chart.render(values).of_kind("ClusterRole")


def test_rollback_does_not_delete_brokers(defaults: Rendered) -> None:
    """Helm would, if the previous revision had no Broker. Only the pre-delete hook deletes it."""
    assert defaults.get("Broker", "flotilla-broker")["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_brokers_use_the_named_service_account(chart: Chart, defaults: Rendered) -> None:
    """By default they have their own, which the operator creates."""
    assert "serviceAccountName" not in defaults.get("Broker", "flotilla-broker")["spec"]["template"]
    for given, name in (({"create": False, "name": "x"}, "x"), ({"create": False}, "default"), ({"name": "x"}, "x")):
        made = chart.render({"serviceAccount": given}).get("Broker", "flotilla-broker")
        assert made["spec"]["template"]["serviceAccountName"] == name


def test_hooks_are_scheduled_like_the_operator(chart: Chart) -> None:
    tolerations = [{"key": "dedicated", "operator": "Exists"}]
    rendered = chart.render({"operator": {"tolerations": tolerations, "nodeSelector": {"disk": "fast"}}})
    for name in ("flotilla-upgrade", "flotilla-delete", "flotilla-operator"):
        pod = rendered.pod(name)
        assert (pod["tolerations"], pod["nodeSelector"]) == (tolerations, {"disk": "fast"})


def test_hooks_have_exactly_the_permissions_that_they_need(defaults: Rendered) -> None:
    """By resource name where Kubernetes supports it, i.e. not for create and list."""
    permissions = [
        (name, resource, rule["verbs"], rule.get("resourceNames"))
        for kind in ("Role", "ClusterRole")
        for name, role in defaults.of_kind(kind).items()
        if is_hook(role)
        for rule in role["rules"]
        for resource in rule["resources"]
    ]
    broker = ["flotilla-broker"]
    definitions = ["brokers.flotilla.dev", "pipelines.flotilla.dev", "topics.flotilla.dev"]
    assert sorted(permissions, key=str) == [
        ("flotilla-delete", "brokers", ["get", "delete"], broker),
        ("flotilla-delete", "deployments", ["patch"], ["flotilla-operator"]),
        ("flotilla-delete", "pods", ["get", "list", "delete"], None),
        ("flotilla-delete", "topics", ["list", "patch"], None),
        ("flotilla-upgrade", "brokers", ["create"], None),
        ("flotilla-upgrade", "brokers", ["get", "patch"], broker),
        ("flotilla-upgrade", "poddisruptionbudgets", ["patch"], broker),
        ("flotilla-upgrade", "services", ["patch"], broker),
        ("flotilla-upgrade", "statefulsets", ["patch"], broker),
        ("q-flotilla-upgrade", "customresourcedefinitions", ["create"], None),
        ("q-flotilla-upgrade", "customresourcedefinitions", ["get", "patch"], definitions),
    ]


# -- invalid values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"brokers": {"replica": 3}}, "replica"),
        ({"broker": {}}, "broker"),
        ({"brokers": {"replicas": 0}}, "/brokers/replicas"),
        ({"brokers": {"replicas": "three"}}, "/brokers/replicas"),
        ({"brokers": {"storage": {"size": "10 GB"}}}, "/brokers/storage/size"),
        ({"brokers": {"config": {"data": "/elsewhere"}}}, "data"),
        ({"brokers": {"config": {"segment_byte": 1}}}, "segment_byte"),
        ({"brokers": {"update": "Recreate"}}, "/brokers/update"),
        ({"brokers": {"updateStrategy": "OnDelete"}}, "updateStrategy"),
        ({"brokers": {"claimRetention": {"whenDeleted": "Keep"}}}, "/brokers/claimRetention/whenDeleted"),
        ({"operator": {"replicas": 2}}, "replicas"),
        ({"brokers": {"extraEnv": [{"name": "FLOTILLA_DATA", "value": "/"}]}}, "/brokers/extraEnv/0/name"),
        ({"brokers": {"spread": {"hosts": "Never"}}}, "/brokers/spread/hosts"),
        ({"managers": {"config": {"log_level": "loud"}}}, "/managers/config/log_level"),
        ({"readers": {"autoscaling": {"enable": True}}}, "enable"),
        ({"writer": {"replicas": 2}}, "replicas"),
        ({"auth": {"enabled": "yes"}}, "/auth/enabled"),
        ({"image": {"digest": "sha256:short"}}, "/image/digest"),
        ({"ingress": {"tls": {"enabled": True}}}, "/ingress/host"),
        ({"ingress": {"host": "http://queue.example.com"}}, "/ingress/host"),
        ({"ingress": {"annotations": {"size": 33}}}, "/ingress/annotations/size"),
        ({"service": {"type": "Headless"}}, "/service/type"),
        ({"networkPolicy": {"apiClients": ["everybody"]}}, "/networkPolicy/apiClients/0"),
        ({"postgresql": {"uid": 0}}, "/postgresql/uid"),
    ],
)
def test_invalid_value_is_rejected_with_its_key(chart: Chart, values: Manifest, key: str) -> None:
    with pytest.raises(RenderError, match=key):
        chart.render(values)


def test_every_value_is_in_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    documented = {line.split(":")[0] for line in text.splitlines() if line and line[0] not in " #"}
    assert documented == set(schema["properties"]) - {"global"}


# -- helpers ------------------------------------------------------------------------------------------------------


def _selector(rendered: Rendered, name: str) -> Manifest:
    made_by = rendered.of_kind("StatefulSet").get(name) or rendered.of_kind("Deployment")[name]
    labels: Manifest = made_by["spec"]["selector"]["matchLabels"]
    return labels


def test_no_role_may_create_pods_without_spark(chart: Chart) -> None:
    rendered = chart.render({"spark": {"enabled": False}})
    assert not [one for one in rendered.manifests if one["metadata"]["name"].endswith("-spark")]
    for kind in ("Role", "ClusterRole"):
        for role in rendered.of_kind(kind).values():
            assert not [rule for rule in role["rules"] if "pods" in rule["resources"] and "create" in rule["verbs"]]
    (rule,) = [one for one in rendered.get("Role", "flotilla-operator")["rules"] if one["resources"] == ["pipelines"]]
    assert rule["verbs"] == ["get", "list", "watch", "delete"], "it reports that Pipelines do not run"
    names = {one["name"] for one in rendered.pod("flotilla-operator")["containers"][0]["env"]}
    assert "FLOTILLA_SPARK_IMAGE" not in names


def _mounts(rendered: Rendered, name: str) -> list[Manifest]:
    mounts: list[Manifest] = rendered.pod(name)["containers"][0]["volumeMounts"]
    return mounts


def _volume(rendered: Rendered, name: str, volume: str) -> Manifest:
    (found,) = [one for one in rendered.pod(name)["volumes"] if one["name"] == volume]
    secret: Manifest = found["secret"]
    return secret


def _data(rendered: Rendered, name: str) -> dict[str, str]:
    data: dict[str, str] = rendered.get("Secret", name)["data"]
    return data


def _rules(policy: Manifest) -> dict[str, Any]:
    return {rule.get("ports", [{"port": "any"}])[0]["port"]: rule.get("from") for rule in policy["spec"]["ingress"]}


def _notes(notes: Chart, values: Manifest) -> str:
    return str(notes.render(values).get("ConfigMap", "notes")["data"]["notes"])
