"""Real runs over stock engines: the servers' addresses, and how requests are sent to them."""

import shlex
from dataclasses import dataclass
from typing import Final

from servetwin.config.key import COUNT, NOT_NEGATIVE, POSITIVE, Range, key
from serving.vocabulary.errors import UserError

WORKERS: Final = "workers"
HTTP: Final = "http"
WORLDS: Final = (WORKERS, HTTP)
ELSEWHERE: Final = "elsewhere"
LOST: Final = (ELSEWHERE, "fail")
# With vLLM's connectors the decode server fetches the KV after the prompt is computed (AFTER). SGLang's need
# the addresses of both servers in the first request (TOGETHER).
AFTER: Final = "after"
TOGETHER: Final = "together"
HAND_OVERS: Final = (AFTER, TOGETHER)
PROCESSES: Final = "processes"
KUBERNETES: Final = "kubernetes"
RAY: Final = "ray"
LAUNCHERS: Final = (PROCESSES, KUBERNETES, RAY)
LOGS: Final = ("json",)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """Servers that already run or that the run starts, and how requests are sent to them."""

    servers: str | None = key(
        "required with `world=http` without `http.start`: `[http://HOST:PORT,...]`; replica n is server n",
        default=None,
    )
    model: str | None = key("the servers' name of the model; null: the first that they list", default=None)
    lost: str = key(
        "requests of a lost server continue `elsewhere` with the tokens they have, or `fail`",
        default=LOST[0],
        choices=LOST,
    )
    report_ms: float = key(
        "period of token reports to the controller; first and last tokens are reported at once",
        default=50.0,
        within=NOT_NEGATIVE,
    )
    scrape_ms: float = key("period of scrapes of a server's metrics", default=250.0, within=POSITIVE)
    timeout_s: float = key(
        "a server that so long neither answers a scrape nor reports itself healthy is lost",
        default=10.0,
        within=POSITIVE,
    )
    silence_s: float = key(
        "a server whose streams bring no token for this long is lost", default=300.0, within=POSITIVE
    )
    check_tokens: int = key(
        "tokens requested again after the run, alone, and compared; those of moved requests first",
        default=2000,
        within=NOT_NEGATIVE,
    )
    start: str | None = key(
        "in place of `http.servers`: the command that [starts a "
        "server](../how-to/HTTP.md#start-and-stop-servers), such as `vllm serve MODEL --port "
        "{port}`; `{server}` is its number, `{host}` the address of its host",
        default=None,
        omit=None,
    )
    start_timeout_s: float = key(
        "a server that answers nothing so long after its start is ended",
        default=600.0,
        within=POSITIVE,
        omit=600.0,
    )
    cores: int | None = key(
        "CPU cores of each started server; null: all",
        default=None,
        within=COUNT,
        omit_with="start",
    )
    gpus: int | None = key(
        "with `http.launcher=ray`: GPUs of each started server", default=None, within=COUNT, omit=None
    )
    after_grace: str = key(
        "requests still at a server after system.instances.drain_s continue `elsewhere`, or `fail`",
        default=LOST[0],
        choices=LOST,
        omit=LOST[0],
    )
    kill_s: float = key(
        "seconds from SIGTERM to SIGKILL of a started server",
        default=10.0,
        within=NOT_NEGATIVE,
        omit=10.0,
    )
    launcher: str = key(
        "what starts instances: `processes` of this host (`http.start`), `ray`, which starts them on the "
        "nodes of a cluster, or `kubernetes`, which scales `http.deployment` "
        "([KUBERNETES](../how-to/KUBERNETES.md))",
        default=PROCESSES,
        choices=LAUNCHERS,
        omit=PROCESSES,
    )
    deployment: str | None = key(
        "with `http.launcher=kubernetes`: the Deployment whose pods are the instances, as NAMESPACE/NAME, or "
        "NAME in the namespace of the kubeconfig",
        default=None,
        omit=None,
    )
    kubeconfig: str | None = key(
        "the kubeconfig file with the address of the Kubernetes API; null: the pod's own service account if "
        "the run is in a pod, else $KUBECONFIG, else ~/.kube/config",
        default=None,
        omit=None,
    )
    pod_port: int | None = key(
        "the port of a pod at which its server answers; null: the first that its containers name",
        default=None,
        within=Range(low=1, high=65535),
        omit=None,
    )
    hand_over: str | None = key(
        "the decode server is asked `after` the prefill server (vLLM), or both `together` "
        "(SGLang); null: by the kind of server",
        default=None,
        choices=HAND_OVERS,
    )

    @property
    def starts(self) -> bool:
        """Whether the run starts and stops servers."""
        return self.start is not None or self.launcher == KUBERNETES


NO_SERVERS: Final = HttpConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Metrics of a real run while it runs."""

    port: int | None = key(
        "port of 127.0.0.1 that serves the run's metrics to Prometheus; 0: a free one, printed; null:"
        " none ([HTTP](../how-to/HTTP.md#metrics-and-logs))",
        default=None,
        within=Range(low=0, high=65535),
    )


NO_METRICS: Final = MetricsConfig()


def servers_of(one: HttpConfig) -> list[str]:
    """Return the servers' addresses."""
    return servers_of_text(one.servers or "")


def servers_of_text(text: str) -> list[str]:
    """Split the text of ``http.servers`` into addresses."""
    listed = text.startswith("[") and text.endswith("]")  # an IPv6 address has brackets of its own
    words = (text[1:-1] if listed else text).split(",")
    return [word.strip().strip("'\"") for word in words if word.strip()]


def check_world(world: str, one: HttpConfig) -> None:
    """Refuse a world of servers without servers, and a command that starts none."""
    if world != HTTP:
        return
    if one.launcher == KUBERNETES:
        _check_pods(one)
        return
    for name in _OF_PODS:
        if getattr(one, name) is not None:
            raise UserError(f"http.{name} is of pods: add http.launcher={KUBERNETES}, or leave it out")
    if one.gpus is not None and one.launcher != RAY:
        raise UserError(f"http.gpus is what Ray gives a server: add http.launcher={RAY}, or leave it out")
    if one.start is None:
        if one.launcher == RAY:
            raise UserError(f"http.launcher={RAY} starts servers: write http.start=COMMAND")
        if not servers_of(one):
            raise UserError(
                "http.servers is missing: write http.servers=[http://HOST:PORT,...], or http.start=COMMAND"
            )
        return
    if one.servers is not None:
        raise UserError(
            "http.servers are servers that run already, and http.start starts others: write one of them"
        )
    try:
        words = command_of(one.start, 1, 0)
    except (ValueError, LookupError) as error:
        raise UserError(
            f"http.start={one.start} is no command ({error or type(error).__name__}): write one such as "
            "'vllm serve MODEL --port {port}', with {{ and }} for braces of its own"
        ) from None
    if words == command_of(one.start, 2, 0):
        raise UserError(f"http.start={one.start} names no port: write {{port}} where the command has it")


# Keys of http.launcher=kubernetes alone, and those of processes of this host.
_OF_PODS: Final = ("deployment", "kubeconfig", "pod_port")
_OF_PROCESSES: Final = ("servers", "start", "cores", "gpus")


def _check_pods(one: HttpConfig) -> None:
    """Refuse pods of no Deployment, and keys of servers that run already or are processes of this host."""
    if one.deployment is None or not all(one.deployment.split("/")) or one.deployment.count("/") > 1:
        given = " is missing" if one.deployment is None else f"={one.deployment} names no Deployment"
        raise UserError(f"http.deployment{given}: write http.deployment=NAMESPACE/NAME, or NAME alone")
    for name in _OF_PROCESSES:
        if getattr(one, name) is not None:
            raise UserError(
                f"http.{name} does not fit http.launcher={KUBERNETES}, where the Deployment says what runs "
                "in a pod: leave it out"
            )


def command_of(template: str, port: int, server: int, host: str = "") -> list[str]:
    """Return the words of the command that starts a server. Raises ValueError or LookupError."""
    return [word.format(port=port, server=server, host=host) for word in shlex.split(template)]
