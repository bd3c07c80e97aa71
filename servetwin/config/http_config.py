"""Real runs over stock engines: the servers' addresses, and how requests are sent to them."""

from dataclasses import dataclass
from typing import Final

from servetwin.config.key import NOT_NEGATIVE, POSITIVE, Range, key
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
LOGS: Final = ("json",)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """Servers that already run, and how requests are sent to them."""

    servers: str | None = key(
        "required with `world=http`: `[http://HOST:PORT,...]`; replica n is server n", default=None
    )
    model: str | None = key("the servers' name of the model; null: the first that they list", default=None)
    lost: str = key(
        "requests of a lost server continue `elsewhere` with the tokens they have, or `fail`",
        default=LOST[0],
        choices=LOST,
    )
    report_ms: float = key(
        "period between two reports of tokens to the controller; first and last tokens are reported at once",
        default=50.0,
        within=NOT_NEGATIVE,
    )
    scrape_ms: float = key("period between two scrapes of a server's metrics", default=250.0, within=POSITIVE)
    timeout_s: float = key(
        "timeout of a scrape; a server that neither answers it nor reports itself healthy is lost",
        default=10.0,
        within=POSITIVE,
    )
    silence_s: float = key(
        "a server whose streams bring no token for this long is lost", default=300.0, within=POSITIVE
    )
    check_tokens: int = key(
        "after the run, this many tokens are requested again, alone and undisturbed, and "
        "compared; tokens of requests that moved to another server come first",
        default=2000,
        within=NOT_NEGATIVE,
    )
    hand_over: str | None = key(
        "for prefill and decode servers: the decode server is asked `after` the prefill "
        "server (vLLM), or both `together` (SGLang); null: by the kind of server",
        default=None,
        choices=HAND_OVERS,
    )


NO_SERVERS: Final = HttpConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Metrics of a real run while it runs."""

    port: int | None = key(
        "a port of 127.0.0.1 that serves the run's metrics to Prometheus while it lasts; 0: "
        "any free port, which is printed ([HTTP](HTTP.md#metrics-and-logs)); null: none",
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
    """Refuse servers without their world."""
    if world == HTTP and not servers_of(one):
        raise UserError("http.servers is missing: write http.servers=[http://HOST:PORT,...]")
