"""The settings of the operator: one frozen object, from flags and environment, checked before anything starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flotilla.serving.logs import LEVELS
from flotilla.serving.settings import (
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
from flotilla_operator.brokers.spec import Cluster
from flotilla_operator.pipelines.wish import Installation


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _name(text: str) -> str | None:
    return text or None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the operator can be told. Most of it is what brokers of this installation have in common."""

    namespace: str = setting("", "the namespace whose resources are looked after")
    cluster: str = setting("flotilla", "the name of this installation, as resources give it in spec.cluster")
    instance: str = setting("flotilla", "the label app.kubernetes.io/instance of its pods")
    app: str = setting("flotilla", "the label app.kubernetes.io/name of its pods")
    writer: str = setting("", "the base URL of the writer, with its control API")
    managers: tuple[str, ...] = setting((), "base URLs of managers that brokers are told, with commas", parse_urls)
    image: str = setting("", "the image of brokers that name none")
    image_pull_policy: str = setting("IfNotPresent", "when that image is pulled")
    image_pull_secrets: tuple[str, ...] = setting((), "names of Secrets for pulling it, with commas", _names)
    auth: str = setting("on", "whether brokers ask callers who they are: on or off")
    broker_secret: str = setting("flotilla-secret", "the Secret that servers know each other by")
    broker_secret_key: str = setting("secret", "its key")
    broker_tls_secret: str | None = setting(None, "a Secret with certificates for brokers", _name)
    broker_tls_peers: bool = setting(True, "whether brokers show each other that certificate, too", parse_flag)
    secret_file: Path | None = setting(None, "a file with the secret that all servers share", Path)
    tls_ca: Path | None = setting(
        None, "who signs certificates of managers; by default, whom this machine trusts", Path
    )
    public: str = setting("", "the base URL of the API for clients, which applications of Pipelines are told")
    spark_image: str | None = setting(None, "the image of Pipelines; without it, none runs", _name)
    spark_account: str = setting("flotilla-spark", "the account of drivers, which may make executors")
    executor_account: str = setting("default", "the account of executors, which need no rights")
    host: str = setting("127.0.0.1", "where health and metrics are served")
    port: int = setting(8080, "where health and metrics are served", int)
    log_level: str = setting("info", "debug, info, warning or error")
    secret: bytes | None = secret("secret_file")

    def __post_init__(self) -> None:
        for name in ("namespace", "cluster", "writer", "image"):
            require(bool(getattr(self, name)), name, "given")
        require(bool(self.managers), "managers", "given")
        require(self.spark_image is None or bool(self.public), "public", "given, where there are Pipelines")
        require(self.auth in {"on", "off"}, "auth", "on or off")
        require_port(self.port, "port")
        require(self.log_level in LEVELS, "log_level", "debug, info, warning or error")
        if len(parse_urls(self.writer)) != 1:
            raise SettingsInvalid(f"writer is {self.writer!r}; it must be one URL, as in http://flotilla-writer:8080")

    @property
    def brokers(self) -> Cluster:
        """What all brokers have in common."""
        return Cluster(
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
    def pipelines(self) -> Installation:
        """What all pipelines have in common."""
        return Installation(
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
        description="The operator of Flotilla: it looks after Topics, Brokers and Pipelines.",
    )
    return load(Settings, arguments, environment, parser)
