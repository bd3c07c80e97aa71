"""Real runs over stock engines: the servers' addresses, and how requests are sent to them."""

from dataclasses import dataclass
from typing import Final

from servetwin.config.ranges import Range
from serving.vocabulary.errors import UserError

WORKERS: Final = "workers"
HTTP: Final = "http"
WORLDS: Final = (WORKERS, HTTP)
ELSEWHERE: Final = "elsewhere"
LOST: Final = (ELSEWHERE, "fail")
# vLLM's connectors fetch KV of a computed prompt; SGLang's must know both servers from the start.
AFTER: Final = "after"
TOGETHER: Final = "together"
HAND_OVERS: Final = (AFTER, TOGETHER)
LOGS: Final = ("json",)
_POSITIVE: Final = Range(low=0, open_low=True)
_RANGES: Final = {"report_ms": Range(low=0), "check_tokens": Range(low=0)}
_TIMES: Final = ("scrape_ms", "timeout_s", "silence_s")


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """``servers``: their addresses, ``[http://HOST:PORT,...]``. ``model``: its name there; None: the first
    that the servers name. ``lost``: a lost server's requests continue ``elsewhere``, or ``fail``.
    ``report_ms``: between two reports of tokens, but for first and last ones; ``scrape_ms``: between two
    reads of a server's metrics; ``timeout_s``: of those reads; ``silence_s``: in which a stream must bring a
    token. ``check_tokens``: how many are generated again after the run, and compared.
    ``hand_over``: send the request to the decode server ``after`` the prefill server, or to both
    ``together``; None: as the servers' software requires.
    """

    servers: str | None
    model: str | None
    lost: str
    report_ms: float
    scrape_ms: float
    timeout_s: float
    silence_s: float
    check_tokens: int
    hand_over: str | None = None


NO_SERVERS: Final = HttpConfig(None, None, ELSEWHERE, 50.0, 250.0, 10.0, 300.0, 2000)


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """``port``: of 127.0.0.1, where the run serves its metrics; 0: any free port; None: no metrics."""

    port: int | None


NO_METRICS: Final = MetricsConfig(None)


def servers_of(one: HttpConfig) -> list[str]:
    """Return the servers' addresses."""
    return servers_of_text(one.servers or "")


def servers_of_text(text: str) -> list[str]:
    """Split the text of ``http.servers`` into addresses."""
    listed = text.startswith("[") and text.endswith("]")  # an IPv6 address has brackets of its own
    words = (text[1:-1] if listed else text).split(",")
    return [word.strip().strip("'\"") for word in words if word.strip()]


def check_world(world: str, one: HttpConfig, metrics: MetricsConfig, log: str | None) -> None:
    """Refuse unknown words, numbers out of range, and settings that contradict each other."""
    if world not in WORLDS:
        raise UserError(f"world={world} is unknown: write one of {', '.join(WORLDS)}")
    if one.lost not in LOST:
        raise UserError(f"http.lost={one.lost} is unknown: write one of {', '.join(LOST)}")
    if one.hand_over is not None and one.hand_over not in HAND_OVERS:
        raise UserError(f"http.hand_over={one.hand_over} is unknown: write one of {', '.join(HAND_OVERS)}")
    if log is not None and log not in LOGS:
        raise UserError(f"log={log} is unknown: write log={LOGS[0]} or leave it out")
    if metrics.port is not None and not 0 <= metrics.port < 1 << 16:
        raise UserError(f"metrics.port={metrics.port} is out of range: write a number from 0 to 65535")
    for key, wanted in {**_RANGES, **dict.fromkeys(_TIMES, _POSITIVE)}.items():
        if (value := getattr(one, key)) not in wanted:
            raise UserError(f"http.{key}={value} is out of range: write a number {wanted}")
    if world == HTTP and not servers_of(one):
        raise UserError("http.servers is missing: write http.servers=[http://HOST:PORT,...]")
    if world == WORKERS and one.servers is not None:
        raise UserError(
            f"http.servers={one.servers} does nothing with world=workers: write world=http, or leave it out"
        )
