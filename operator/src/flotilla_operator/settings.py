"""Settings of the operator, from flags and environment variables, validated at start."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flotilla_operator.brokers.spec import BrokerInstallation
from flotilla_operator.pipelines.spec import PipelineInstallation
from flotilla_server.logs import LEVELS
from flotilla_server.settings import (
    REQUIRED,
    SettingsInvalid,
    load,
    make_parser,
    parse_flag,
    parse_urls,
    require,
    require_port,
    secret,
    setting,
)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _name(text: str) -> str | None:
    return text or None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the operator. Most of them are common to all brokers of the installation."""

    namespace: str = setting("", "namespace to reconcile", fallback=REQUIRED)
    cluster: str = setting("flotilla", "name of this installation; resources with this spec.cluster are reconciled")
    instance: str = setting("flotilla", "label app.kubernetes.io/instance of its pods")
    app: str = setting("flotilla", "label app.kubernetes.io/name of its pods")
    writer: str = setting("", "base URL of the writer's control API", fallback=REQUIRED)
    managers: tuple[str, ...] = setting(
        (), "comma-separated base URLs of the managers for brokers", parse_urls, fallback=REQUIRED
    )
    image: str = setting("", "default image of brokers", fallback=REQUIRED)
    image_pull_policy: str = setting("IfNotPresent", "pull policy of that image")
    image_pull_secrets: tuple[str, ...] = setting((), "comma-separated pull Secrets for that image", _names)
    auth: str = setting("on", "authentication of clients by brokers: on or off")
    broker_secret: str = setting("flotilla-secret", "Secret with the key that all servers share")
    broker_secret_key: str = setting("secret", "key in that Secret")
    broker_tls_secret: str | None = setting(None, "Secret with the certificates of brokers", _name)
    broker_tls_peers: bool = setting(True, "use mutual TLS between brokers", parse_flag)
    secret_file: Path | None = setting(None, "file with the secret that all servers of the cluster share", Path)
    tls_ca: Path | None = setting(None, "CA bundle to verify managers", Path, fallback="system CAs")
    public: str = setting(
        "", "base URL of the client API, for the applications of Pipelines; required with --spark-image"
    )
    spark_image: str | None = setting(None, "image of Pipelines; without it, Pipelines are suspended", _name)
    spark_account: str = setting("flotilla-spark", "service account of drivers, which create executors")
    executor_account: str = setting("default", "service account of executors, without permissions")
    host: str = setting("127.0.0.1", "listen address for health and metrics")
    port: int = setting(8080, "listen port for health and metrics", int)
    log_level: str = setting("info", "log level: debug, info, warning or error")
    secret: bytes | None = secret("secret_file")

    def __post_init__(self) -> None:
        for name in ("namespace", "cluster", "writer", "image"):
            require(bool(getattr(self, name)), name, "set")
        require(bool(self.managers), "managers", "set")
        require(self.spark_image is None or bool(self.public), "public", "set, because spark_image is set")
        require(self.auth in {"on", "off"}, "auth", "on or off")
        require_port(self.port, "port")
        require(self.log_level in LEVELS, "log_level", "debug, info, warning or error")
        if len(parse_urls(self.writer)) != 1:
            raise SettingsInvalid(f"writer is {self.writer!r}; it must be one URL, as in http://flotilla-writer:8080")

    @property
    def brokers(self) -> BrokerInstallation:
        """Properties that all brokers of the installation have in common."""
        return BrokerInstallation(
            name=self.cluster,
            namespace=self.namespace,
            instance=self.instance,
            app=self.app,
            image=self.image,
            image_pull_policy=self.image_pull_policy,
            image_pull_secrets=self.image_pull_secrets,
            managers=self.managers,
            auth=self.auth,
            secret=self.broker_secret,
            secret_key=self.broker_secret_key,
            tls_secret=self.broker_tls_secret,
            tls_peers=self.broker_tls_peers,
        )

    @property
    def pipelines(self) -> PipelineInstallation:
        """Properties that all Pipelines of the installation have in common."""
        return PipelineInstallation(
            namespace=self.namespace,
            instance=self.instance,
            app=self.app,
            url=self.public,
            image=self.spark_image,
            image_pull_policy=self.image_pull_policy,
            image_pull_secrets=self.image_pull_secrets,
            driver_account=self.spark_account,
            executor_account=self.executor_account,
            tls_secret=self.broker_tls_secret,
        )


def load_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Read flags and environment; raises SettingsInvalid. `--help` ends the process."""
    parser = make_parser(
        Settings,
        prog="python -m flotilla_operator",
        description="Reconcile Topic, Broker and Pipeline resources of Flotilla.",
    )
    return load(Settings, arguments, environment, parser)
