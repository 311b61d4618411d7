"""The chart renders what it promises, and refuses what makes no sense."""

import base64
import dataclasses
import json
from typing import Any

import pytest
import yaml

from cluster.harness.images import CHART, ROOT
from flotilla_broker.settings import Settings as BrokerSettings
from flotilla_manager.settings import Settings as ManagerSettings

from .conftest import Chart, Manifest, Refused, Rendered

SERVERS = ("flotilla-broker", "flotilla-writer", "flotilla-reader")
MANAGERS = ("flotilla-writer", "flotilla-reader")
HOOKS = {"flotilla-test", "flotilla-upgrade", "flotilla-delete"}
PODS = {*SERVERS, *HOOKS, "flotilla-operator", "flotilla-postgresql"}
# Everything that is optional, at once: what holds for every pod has to hold for all of them.
EVERYTHING: Manifest = {
    "readers": {"autoscaling": {"enabled": True}},
    "networkPolicy": {"enabled": True},
    "serviceMonitor": {"enabled": True},
    "tls": {"existingSecret": "certificates"},
}


@pytest.fixture(scope="module", params=["defaults", "everything"])
def rendered(request: pytest.FixtureRequest, chart: Chart, defaults: Rendered) -> Rendered:
    return defaults if request.param == "defaults" else chart.render(EVERYTHING)


# -- what is there ------------------------------------------------------------------------------------------------


def test_the_defaults_are_a_whole_system(defaults: Rendered) -> None:
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
    """Tell whether a resource is there only while Helm does something."""
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
def test_names_begin_with_the_release(chart: Chart, release: str, values: Manifest, name: str) -> None:
    rendered = chart.render(values, release=release)
    assert rendered.get("StatefulSet", f"{name}-broker")["spec"]["serviceName"] == f"{name}-broker"
    assert rendered.env(f"{name}-reader")["FLOTILLA_WRITER"] == f"http://{name}-writer.q.svc:8080"
    assert all(one["metadata"]["name"].removeprefix("q-").startswith(name) for one in rendered.manifests)


def test_two_releases_in_a_namespace_have_nothing_in_common(chart: Chart) -> None:
    one, other = chart.render(release="a"), chart.render(release="b")
    assert not one.names & other.names
    assert _selector(one, "a-flotilla-broker") != _selector(other, "b-flotilla-broker")


def test_the_longest_names_fit_into_labels(chart: Chart) -> None:
    rendered = chart.render({"nameOverride": "x" * 40}, release="r" * 53)
    longest = max((one["metadata"]["name"] for one in rendered.manifests if "Cluster" not in one["kind"]), key=len)
    assert len(longest) <= 63 - len("-0123456789")  # a StatefulSet's pods have a label with its name and revision


def test_selectors_hold_what_never_changes(rendered: Rendered) -> None:
    common = {f"app.kubernetes.io/{what}" for what in ("name", "instance", "component")}
    for one in rendered.manifests:
        expected = common | ({"flotilla.dev/broker"} if one["metadata"]["name"] == "flotilla-broker" else set())
        if one["kind"] in {"Deployment", "StatefulSet"}:
            assert set(one["spec"]["selector"]["matchLabels"]) == expected
            assert expected <= set(one["spec"]["template"]["metadata"]["labels"])
        if one["kind"] == "Service":
            assert set(one["spec"]["selector"]) == expected


def test_everything_has_the_labels_that_tools_look_for(rendered: Rendered) -> None:
    expected = {f"app.kubernetes.io/{what}" for what in ("name", "instance", "managed-by", "part-of")}
    for one in rendered.manifests:
        by_helm = (
            {"app.kubernetes.io/version"}
            if one["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
            else set()
        )
        assert expected | by_helm <= set(one["metadata"]["labels"]), one["metadata"]["name"]


def test_a_new_chart_with_the_same_image_replaces_no_pod(defaults: Rendered) -> None:
    for one in defaults.manifests:
        if one["kind"] in {"Deployment", "StatefulSet"}:
            assert "helm.sh/chart" not in one["spec"]["template"]["metadata"]["labels"]
    postgresql = defaults.get("StatefulSet", "flotilla-postgresql")
    assert "app.kubernetes.io/version" not in postgresql["spec"]["template"]["metadata"]["labels"]


# -- pods ---------------------------------------------------------------------------------------------------------


def test_every_pod_runs_without_rights(rendered: Rendered) -> None:
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


def test_only_those_who_speak_with_kubernetes_can(rendered: Rendered) -> None:
    """A token is in the operator's pod and in hooks' alone, and each has an account of its own."""
    speaks = {name for name, pod in rendered.pods() if any("projected" in volume for volume in pod["volumes"])}
    assert speaks == {"flotilla-operator", "flotilla-upgrade", "flotilla-delete"}
    for name, pod in rendered.pods():
        bound = [one for one in rendered.manifests if one["kind"].endswith("RoleBinding")]
        has_rights = pod["serviceAccountName"] in {one["subjects"][0]["name"] for one in bound}
        assert has_rights == (name in speaks), name


def test_no_pod_is_told_of_services_by_variables(rendered: Rendered) -> None:
    """A Service called `flotilla` would become FLOTILLA_PORT=tcp://..., which is the name of a setting."""
    for name, pod in rendered.pods():
        assert pod["enableServiceLinks"] is False, name


def test_every_container_has_resources_and_those_that_serve_have_probes(rendered: Rendered) -> None:
    for name, pod in rendered.pods():
        for container in pod["containers"]:
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}, name
            assert container["resources"]["limits"].keys() == {"memory"}, name
            if name not in HOOKS:
                assert container.keys() >= {"livenessProbe", "readinessProbe"}, name
            if name in {*SERVERS, "flotilla-postgresql"}:
                assert "startupProbe" in container, name


def test_liveness_asks_whether_the_loop_turns_and_readiness_for_more(rendered: Rendered) -> None:
    for name in SERVERS:
        (container,) = rendered.pod(name)["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
            request = container[probe]["httpGet"]
            assert request["path"] == path
            assert ports[request["port"]] == (8090 if name == "flotilla-broker" else 8080)


def test_volumes_that_are_mounted_are_there(rendered: Rendered) -> None:
    for name, pod in rendered.pods():
        volumes = {volume["name"] for volume in pod["volumes"]}
        if name in {"flotilla-broker", "flotilla-postgresql"}:
            volumes.add("data")
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes, name
            assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}  # noqa: S108 - in a pod


def test_the_image_comes_from_values(chart: Chart) -> None:
    image = {"registry": "registry.example.com/team", "repository": "queue", "tag": "1.2", "pullPolicy": "Always"}
    values = {"image": image, "imagePullSecrets": [{"name": "key"}], "postgresql": {"image": "example.com/pg:16"}}
    for name, pod in chart.render(values).pods():
        (container,) = pod["containers"]
        expected = "example.com/pg:16" if name == "flotilla-postgresql" else "registry.example.com/team/queue:1.2"
        assert container["image"] == expected
        assert container["imagePullPolicy"] == ("IfNotPresent" if name == "flotilla-postgresql" else "Always")
        assert pod["imagePullSecrets"] == [{"name": "key"}]


def test_the_image_is_by_default_of_the_charts_version(defaults: Rendered) -> None:
    assert defaults.pod("flotilla-broker")["containers"][0]["image"] == "flotilla:0.2.0"


def test_a_digest_wins_over_a_tag(chart: Chart) -> None:
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
def test_where_pods_go_and_what_they_get_comes_from_values(chart: Chart, part: str, name: str) -> None:
    place = {
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "queue", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
    }
    resources = {"requests": {"cpu": "2", "memory": "3Gi"}, "limits": {"memory": "4Gi"}}
    about = {"podAnnotations": {"note": 'a "quoted": text'}, "podLabels": {"team": "queue"}}
    rendered = chart.render({part: {**place, **about, "resources": resources}})
    pod = rendered.pod(name)
    assert {key: pod[key] for key in place} == place
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


def test_brokers_say_where_they_are_and_know_managers(defaults: Rendered) -> None:
    env = defaults.env("flotilla-broker")
    assert env["FLOTILLA_ADVERTISE_HOST"] == "$(POD_NAME).flotilla-broker.$(POD_NAMESPACE).svc"
    assert env["FLOTILLA_MANAGERS"] == "http://flotilla-writer.q.svc:8080,http://flotilla-reader.q.svc:8080"
    (mount,) = [one for one in _mounts(defaults, "flotilla-broker") if one["name"] == "data"]
    assert env["FLOTILLA_DATA"] == mount["mountPath"] + "/data"


def test_managers_know_their_role_and_how_to_be_reached(defaults: Rendered) -> None:
    writer, reader = (defaults.env(name) for name in MANAGERS)
    assert (writer["FLOTILLA_ROLE"], writer["FLOTILLA_URL"]) == ("writer", "http://flotilla-writer.q.svc:8080")
    assert (reader["FLOTILLA_ROLE"], reader["FLOTILLA_URL"]) == ("reader", "http://$(POD_IP):8080")
    assert reader["FLOTILLA_WRITER"] == writer["FLOTILLA_URL"]
    assert {writer["FLOTILLA_NAME"], reader["FLOTILLA_NAME"]} == {"$(POD_NAME)"}


def test_variables_refer_to_those_before_them(rendered: Rendered) -> None:
    """Kubernetes fills in only what was defined earlier."""
    for name in SERVERS:
        known: set[str] = set()
        for variable, value in rendered.env(name).items():
            if isinstance(value, str) and "$(" in value:
                assert value.split("$(")[1].split(")")[0] in known, (name, variable)
            known.add(variable)


@pytest.mark.parametrize(("replicas", "least"), [(1, "1"), (2, "2"), (3, "3"), (5, "3")])
def test_no_topic_is_made_before_three_brokers_are_there_or_all(chart: Chart, replicas: int, least: str) -> None:
    rendered = chart.render({"brokers": {"replicas": replicas}})
    assert rendered.get("StatefulSet", "flotilla-broker")["spec"]["replicas"] == replicas
    assert {rendered.env(name)["FLOTILLA_BROKERS_MIN"] for name in MANAGERS} == {least}


def test_settings_become_variables_as_servers_read_them(chart: Chart) -> None:
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
def test_every_setting_is_set_by_the_chart_or_by_values(
    chart: Chart, settings: type[BrokerSettings | ManagerSettings], part: str, pods: tuple[str, ...]
) -> None:
    names = {one.name for one in dataclasses.fields(settings)}
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    open_to_users = set(schema["properties"][part]["properties"]["config"]["properties"])
    everything = chart.render(EVERYTHING)
    prefix = "FLOTILLA_"
    by_chart = {one.removeprefix(prefix).lower() for pod in pods for one in everything.env(pod) if prefix in one}
    # Advertised by default as they should be, by other means, or of no use in a pod. Racks are told by the operator.
    left_out = {"advertise_port", "advertise_peer_host", "advertise_peer_port", "secret", "rack"}
    left_out |= {"database", "own_port", "reuse_port"}
    assert open_to_users <= names
    assert not open_to_users & by_chart
    assert names - by_chart - open_to_users <= left_out, "values.schema.json lacks settings that servers have"
    assert by_chart <= names


def test_other_variables_can_be_added(chart: Chart) -> None:
    extra = [{"name": "TZ", "value": "UTC"}, {"name": "FLOTILLA_LOG_FORMAT", "value": "human"}]
    rendered = chart.render({part: {"extraEnv": extra} for part in ("brokers", "writer", "readers")})
    for name in SERVERS:
        assert rendered.env(name)["TZ"] == "UTC"
        assert rendered.env(name)["FLOTILLA_LOG_FORMAT"] == "human"


def test_commands_are_arguments_of_the_images_entrypoint(defaults: Rendered) -> None:
    for name in SERVERS:
        (container,) = defaults.pod(name)["containers"]
        assert "command" not in container
        module = "flotilla_broker" if name == "flotilla-broker" else "flotilla_manager"
        assert container["args"] == ["python3", "-m", module]


# -- nothing is lost ----------------------------------------------------------------------------------------------


def test_volumes_outlive_everything(rendered: Rendered) -> None:
    for one in rendered.of_kind("StatefulSet").values():
        retain = {"whenDeleted": "Retain", "whenScaled": "Retain"}
        assert one["spec"]["persistentVolumeClaimRetentionPolicy"] == retain


def test_secrets_outlive_the_release_and_are_long(defaults: Rendered) -> None:
    for one in defaults.of_kind("Secret").values():
        assert one["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    secret = defaults.get("Secret", "flotilla-secret")["data"]["secret"]
    assert len(base64.b64decode(secret)) == 48
    database = {key: base64.b64decode(value).decode() for key, value in _data(defaults, "flotilla-database").items()}
    host = "flotilla-postgresql.q.svc:5432"
    assert database["url"] == f"postgresql://flotilla:{database['password']}@{host}/flotilla"
    assert len(database["password"]) == 32
    assert database["password"].isalnum()


def test_storage_comes_from_values(chart: Chart, defaults: Rendered) -> None:
    storage = {"size": "2Ti", "storageClass": "fast"}
    rendered = chart.render({"brokers": {"storage": storage}, "postgresql": {"storage": storage}})
    for one in rendered.of_kind("StatefulSet").values():
        (claim,) = one["spec"]["volumeClaimTemplates"]
        assert claim["spec"]["storageClassName"] == "fast"
        assert claim["spec"]["resources"]["requests"]["storage"] == "2Ti"
    for one in defaults.of_kind("StatefulSet").values():
        (claim,) = one["spec"]["volumeClaimTemplates"]
        assert "storageClassName" not in claim["spec"]
        assert "app.kubernetes.io/version" not in claim["metadata"]["labels"]  # it cannot be changed later


def test_brokers_start_in_any_order_and_are_replaced_one_at_a_time(chart: Chart, defaults: Rendered) -> None:
    """Kubernetes replaces none by itself: the operator does, when partitions can do without it."""
    spec = defaults.get("StatefulSet", "flotilla-broker")["spec"]
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert defaults.pod("flotilla-broker")["terminationGracePeriodSeconds"] == 60
    assert defaults.get("Broker", "flotilla-broker")["spec"]["update"] == "Rolling"
    by_hand = chart.render({"brokers": {"update": "OnDelete"}})
    assert by_hand.get("Broker", "flotilla-broker")["spec"]["update"] == "OnDelete"


def test_a_cold_start_waits_for_nobody_who_waits_for_it(defaults: Rendered) -> None:
    """Brokers find each other before they are ready, and the writer before it is: it is ready when they are there."""
    assert defaults.get("Service", "flotilla-broker")["spec"]["publishNotReadyAddresses"] is True
    assert defaults.get("Service", "flotilla-broker")["spec"]["clusterIP"] == "None"
    assert defaults.get("Service", "flotilla-writer")["spec"]["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in defaults.get("Service", "flotilla")["spec"]


def test_there_is_one_writer_and_the_old_one_leaves_first(defaults: Rendered) -> None:
    spec = defaults.get("Deployment", "flotilla-writer")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_readers_are_replaced_without_a_gap(defaults: Rendered) -> None:
    spec = defaults.get("Deployment", "flotilla-reader")["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    (container,) = defaults.pod("flotilla-reader")["containers"]
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "5"]


def test_one_broker_at_a_time_may_be_disturbed_and_one_reader_if_there_are_others(chart: Chart) -> None:
    few = chart.render({"readers": {"replicas": 1}})
    assert set(few.of_kind("PodDisruptionBudget")) == {"flotilla-broker"}
    many = chart.render({"readers": {"replicas": 1, "autoscaling": {"enabled": True, "minReplicas": 2}}})
    budgets = many.of_kind("PodDisruptionBudget")
    assert set(budgets) == {"flotilla-broker", "flotilla-reader"}
    for name, budget in budgets.items():
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["selector"]["matchLabels"].items() <= _selector(many, name).items()


# -- readers ------------------------------------------------------------------------------------------------------


def test_autoscaling_decides_about_readers_alone(chart: Chart, defaults: Rendered) -> None:
    assert defaults.get("Deployment", "flotilla-reader")["spec"]["replicas"] == 2
    autoscaling = {"enabled": True, "minReplicas": 3, "maxReplicas": 7, "targetCPUUtilizationPercentage": 50}
    rendered = chart.render({"readers": {"autoscaling": autoscaling}})
    assert "replicas" not in rendered.get("Deployment", "flotilla-reader")["spec"]
    spec = rendered.get("HorizontalPodAutoscaler", "flotilla-reader")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (3, 7)
    assert spec["scaleTargetRef"]["name"] == "flotilla-reader"
    assert spec["metrics"][0]["resource"]["target"]["averageUtilization"] == 50


# -- secrets, TLS, the database -----------------------------------------------------------------------------------


def test_callers_need_tokens_unless_somebody_says_otherwise(chart: Chart, defaults: Rendered) -> None:
    opened = chart.render({"auth": {"enabled": False}})
    for name in SERVERS:
        assert defaults.env(name)["FLOTILLA_AUTH"] == "on"
        assert opened.env(name)["FLOTILLA_AUTH"] == "off"
        assert opened.env(name)["FLOTILLA_SECRET_FILE"] == "/etc/flotilla/secret/secret"  # noqa: S105 - a path
    assert ("Secret", "flotilla-secret") in opened.names  # brokers know each other by it


def test_a_secret_that_is_there_is_used_and_none_is_made(chart: Chart) -> None:
    rendered = chart.render({"auth": {"existingSecret": "mine", "existingSecretKey": "word"}})
    assert set(rendered.of_kind("Secret")) == {"flotilla-database"}
    for name in (*SERVERS, "flotilla-test"):
        volume = _volume(rendered, name, "secret")
        assert (volume["secretName"], volume["items"]) == ("mine", [{"key": "word", "path": "secret"}])


def test_with_a_database_of_ones_own_there_is_no_postgresql(chart: Chart) -> None:
    mine = {"existingSecret": "mine", "existingSecretKey": "dsn"}
    rendered = chart.render({"database": mine, "networkPolicy": {"enabled": True}})
    assert not [one for one in rendered.names if "postgresql" in one[1]]
    assert set(rendered.of_kind("Secret")) == {"flotilla-secret"}
    for name in MANAGERS:
        volume = _volume(rendered, name, "database")
        assert (volume["secretName"], volume["items"]) == ("mine", [{"key": "dsn", "path": "url"}])


def test_postgresql_takes_a_password_that_is_there(chart: Chart) -> None:
    rendered = chart.render({"postgresql": {"existingSecret": "mine"}})
    assert set(rendered.of_kind("Secret")) == {"flotilla-secret"}
    for name in (*MANAGERS, "flotilla-postgresql"):
        assert _volume(rendered, name, "database")["secretName"] == "mine"


def test_postgresql_gets_settings_and_restarts_for_its_script(chart: Chart, defaults: Rendered) -> None:
    rendered = chart.render({"postgresql": {"config": {"max_connections": 2_000_000, "work_mem": "8MB"}, "uid": 70}})
    (container,) = rendered.pod("flotilla-postgresql")["containers"]
    assert container["args"] == ["--max_connections=2000000", "--work_mem=8MB"]
    assert "postgres:x:70:70:" in rendered.get("ConfigMap", "flotilla-postgresql")["data"]["passwd"]

    def checksum(found: Rendered) -> str:
        template = found.get("StatefulSet", "flotilla-postgresql")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    assert checksum(rendered) != checksum(defaults)


def test_servers_speak_tls_alone_if_there_are_certificates(chart: Chart) -> None:
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


# -- the way in ---------------------------------------------------------------------------------------------------


def test_the_ingress_leads_to_the_public_port_alone(rendered: Rendered) -> None:
    """The control API and metrics are on the other one."""
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


def test_the_ingress_comes_from_values(chart: Chart, defaults: Rendered) -> None:
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


def test_the_service_of_readers_can_be_a_load_balancer(chart: Chart) -> None:
    rendered = chart.render({"service": {"type": "LoadBalancer", "annotations": {"internal": "true"}}})
    service = rendered.get("Service", "flotilla")
    assert service["spec"]["type"] == "LoadBalancer"
    assert [port["port"] for port in service["spec"]["ports"]] == [80], "the control API stays inside"
    assert rendered.get("Service", "flotilla-reader")["spec"].get("type", "ClusterIP") == "ClusterIP"
    assert service["metadata"]["annotations"] == {"internal": "true"}


# -- who reaches whom, and who watches ------------------------------------------------------------------------------


def test_policies_let_in_whom_they_should(chart: Chart, defaults: Rendered) -> None:
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


def test_prometheus_is_told_of_all_servers(chart: Chart, defaults: Rendered) -> None:
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


def test_the_notes_say_what_to_do_next(notes: Chart) -> None:
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


# -- the operator, and definitions of resources ---------------------------------------------------------------------


def test_the_chart_carries_the_definitions_of_the_project() -> None:
    ours = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "crds").glob("*.yaml")}
    assert set(ours) == {f"{kind}.flotilla.dev.yaml" for kind in ("brokers", "pipelines", "topics")}
    assert {path.name: path.read_text(encoding="utf-8") for path in (CHART / "crds").glob("*.yaml")} == ours


def test_a_hook_brings_definitions_up_to_date(defaults: Rendered) -> None:
    """Helm leaves them as they were when Flotilla was first installed."""
    carried = defaults.get("ConfigMap", "flotilla-upgrade")["data"]
    for path in (CHART / "crds").glob("*.yaml"):
        assert yaml.safe_load(carried[path.name]) == yaml.safe_load(path.read_text(encoding="utf-8"))
    (container,) = defaults.pod("flotilla-upgrade")["containers"]
    for kind in ("statefulset", "service", "poddisruptionbudget"):
        assert f"{kind}/flotilla-broker" in container["args"], "what an older chart made is kept"


def test_where_brokers_are_not_defined_yet_only_the_hook_makes_the_resource(chart: Chart, defaults: Rendered) -> None:
    """Helm looks for definitions before hooks run, and would refuse the upgrade."""
    upgraded = chart.render(upgrades=True)
    assert not upgraded.of_kind("Broker")
    (container,) = upgraded.pod("flotilla-upgrade")["containers"]
    assert container["args"][-2:] == ["--apply", "/files/broker"]
    (later,) = defaults.pod("flotilla-upgrade")["containers"]
    assert later["args"] == [*container["args"], "--only-change"], "Helm makes it where it can"
    made = yaml.safe_load(upgraded.get("ConfigMap", "flotilla-upgrade")["data"]["broker"])
    assert made == defaults.get("Broker", "flotilla-broker")
    assert made["metadata"]["annotations"]["meta.helm.sh/release-name"] == "flotilla", "the next upgrade is Helm's"


def test_the_operator_may_do_what_it_does_and_reads_no_secrets(chart: Chart, defaults: Rendered) -> None:
    rules = defaults.get("Role", "flotilla-operator")["rules"]
    assert not any("*" in rule[key] for rule in rules for key in ("apiGroups", "resources", "verbs"))
    assert not any("secrets" in rule["resources"] for rule in rules)
    assert defaults.get("ClusterRole", "q-flotilla-operator")["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}
    ]
    for values in ({"operator": {"readNodes": False}}, {"brokers": {"rack": {"topologyKey": ""}}}):
        assert "q-flotilla-operator" not in chart.render(values).of_kind("ClusterRole")


def test_a_rollback_does_not_delete_brokers(defaults: Rendered) -> None:
    """Helm would, where the version of before had no such resource; the hook before removal does, and only that."""
    assert defaults.get("Broker", "flotilla-broker")["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_brokers_have_the_account_that_is_named(chart: Chart, defaults: Rendered) -> None:
    """By default they have one of their own, which the operator makes."""
    assert "serviceAccountName" not in defaults.get("Broker", "flotilla-broker")["spec"]["template"]
    for given, name in (({"create": False, "name": "x"}, "x"), ({"create": False}, "default"), ({"name": "x"}, "x")):
        made = chart.render({"serviceAccount": given}).get("Broker", "flotilla-broker")
        assert made["spec"]["template"]["serviceAccountName"] == name


def test_hooks_run_where_the_operator_may(chart: Chart) -> None:
    tolerations = [{"key": "dedicated", "operator": "Exists"}]
    rendered = chart.render({"operator": {"tolerations": tolerations, "nodeSelector": {"disk": "fast"}}})
    for name in ("flotilla-upgrade", "flotilla-delete", "flotilla-operator"):
        pod = rendered.pod(name)
        assert (pod["tolerations"], pod["nodeSelector"]) == (tolerations, {"disk": "fast"})


def test_hooks_may_do_what_they_do_and_nothing_else(defaults: Rendered) -> None:
    """By name, wherever Kubernetes can: what is made does not have one yet."""
    rights = [
        (name, resource, rule["verbs"], rule.get("resourceNames"))
        for kind in ("Role", "ClusterRole")
        for name, role in defaults.of_kind(kind).items()
        if is_hook(role)
        for rule in role["rules"]
        for resource in rule["resources"]
    ]
    broker = ["flotilla-broker"]
    definitions = ["brokers.flotilla.dev", "pipelines.flotilla.dev", "topics.flotilla.dev"]
    assert sorted(rights, key=str) == [
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


# -- what is refused ----------------------------------------------------------------------------------------------


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
def test_values_that_make_no_sense_are_refused_by_name(chart: Chart, values: Manifest, key: str) -> None:
    with pytest.raises(Refused, match=key):
        chart.render(values)


def test_every_value_is_in_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    documented = {line.split(":")[0] for line in text.splitlines() if line and line[0] not in " #"}
    assert documented == set(schema["properties"]) - {"global"}


# -- looking things up --------------------------------------------------------------------------------------------


def _selector(rendered: Rendered, name: str) -> Manifest:
    made_by = rendered.of_kind("StatefulSet").get(name) or rendered.of_kind("Deployment")[name]
    labels: Manifest = made_by["spec"]["selector"]["matchLabels"]
    return labels


def test_without_spark_nobody_may_make_pods(chart: Chart) -> None:
    rendered = chart.render({"spark": {"enabled": False}})
    assert not [one for one in rendered.manifests if one["metadata"]["name"].endswith("-spark")]
    for kind in ("Role", "ClusterRole"):
        for role in rendered.of_kind(kind).values():
            assert not [rule for rule in role["rules"] if "pods" in rule["resources"] and "create" in rule["verbs"]]
    (looked,) = [one for one in rendered.get("Role", "flotilla-operator")["rules"] if one["resources"] == ["pipelines"]]
    assert looked["verbs"] == ["get", "list", "watch", "delete"], "it says of each that it does not run"
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
