"""``realexec run`` and ``observe``: runs on worker processes of this machine, or on inference servers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from servetwin.cli.flags import asked_for_json
from servetwin.cli.own_keys import check_range, split_own
from servetwin.cli.process import tell, telling
from servetwin.config.http_config import HTTP, servers_of_text
from servetwin.config.overrides import Wanted
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from servetwin.config.config import RunConfig

WORKER_DIED: Final = 4
REPEAT: Final = "repeat"
MOST_REPEATS: Final = 100

_WORLD: Final = f"world={HTTP}"
_SERVERS: Final = "http.servers="
# Requests go to the servers in turn, whatever load they report: an open loop.
_SET_BY_OBSERVE: Final = ("world", "http.servers", "system", "system/dispatch", "system/migration")
OPEN_LOOP: Final = ("system=vllm", "system/dispatch=round_robin", "system/admission=none")


def with_servers(words: Sequence[str]) -> list[str]:
    """Add ``workers=`` with the servers' number of GPUs if the words do not set it."""
    servers = [word.removeprefix(_SERVERS) for word in words if word.startswith(_SERVERS)]
    sized = any(word.startswith(("workers=", "cluster=", "cluster.gpus=", "config=")) for word in words)
    if _WORLD not in words or sized or not servers:
        return list(words)
    each = 1
    for word in words:
        key, _, text = word.partition("=")
        if key in ("model.tp", "model.pp") and text.isdecimal():
            each *= max(1, int(text))
    return [*words, f"workers={len(servers_of_text(servers[0])) * each}"]


def observing_words(words: Sequence[str]) -> list[str]:
    """Translate ``URL... KEY=VALUE...`` to words of a run over these servers. Raises UserError."""
    urls = [word for word in words if "://" in word.partition("=")[0]]
    keys = [word for word in words if word not in urls]
    if not urls:
        raise UserError("observe needs a server: write realexec observe http://HOST:PORT KEY=VALUE out=DIR")
    for word in keys:
        if word.partition("=")[0] in _SET_BY_OBSERVE:
            raise UserError(
                f"{word} does not fit observe, which sends requests to its servers in turn: leave it out, or "
                "write realexec run world=http"
            )
    return [_WORLD, f"{_SERVERS}[{','.join(urls)}]", *OPEN_LOOP, *keys]


def run(words: Sequence[str]) -> int:
    """Run a trace, with ``repeat=N`` that many times.

    Exit status 0, 1 if a checked token differs, ``WORKER_DIED`` if requests failed because their worker died.
    """
    from servetwin.config.compose.compose import load_config

    words, as_json = asked_for_json(words)
    own, words = split_own(words, {REPEAT: Wanted(int)})
    config = load_config(with_servers(words), "realexec", alone=True)
    if REPEAT not in own:
        return _run_once(config, as_json)
    repeats = check_range(f"{REPEAT}={own[REPEAT]}", own[REPEAT], 1, MOST_REPEATS)
    outs = [f"{config.out}-{place}" for place in range(1, repeats + 1)]
    return max([_run_once(replace(config, out=out), as_json) for out in outs])


def observe(words: Sequence[str]) -> int:
    """Send a trace to servers as they are; exit status as of ``run``."""
    return run(observing_words(words))


def _run_once(config: "RunConfig", as_json: bool) -> int:
    from servetwin.assemble.fleet import slow_links
    from servetwin.report.table import print_summary
    from servetwin.run.real_folder import real_folder

    if config.world != HTTP and not as_json and (slow := slow_links(config)):
        with telling():
            print(slow)
    summary, target = real_folder(config)
    real, kind = summary["real"], "server" if config.world == HTTP else "worker"
    lines = [f"{kind} {replica} was lost: {cause}" for replica, cause in real["workers_lost"]]
    loose = [str(worker) for worker, pinned in enumerate(real.get("pinned", ())) if pinned is False]
    if loose:
        lines.append(
            f"the GPU's driver did not pin the memory of worker {', '.join(loose)}: copies are slower"
        )
    lines.append(_token_line(real))
    if real["first_difference"] is not None:
        lines.append(f"first difference: {real['first_difference']}")
    lines.append(f"results in {target} (open report.html)")
    where = f"; the results are in {target}"
    if not as_json:
        with telling(where):
            print_summary(summary)
    tell(summary, lines, as_json, where)
    if real["tokens_different"]:
        return 1
    return WORKER_DIED if real["workers_lost"] and summary["requests"]["failed"] else 0


def _token_line(real: Mapping[str, Any]) -> str:
    if "servers" in real:
        checked, why, close = "asked for again", "a move or a loss", 0
    else:
        checked, why, close = f"checked against {real['reference']}", "preemption", real["tokens_close"]
    rounded = f" and {close} are others that are as likely there within its rounding" if close else ""
    return (
        f"tokens: {real['tokens_checked']} {checked}, {real['tokens_different']} differ{rounded}; "
        f"{real['tokens_recomputed']} recomputed after {why}, {real['tokens_unchecked']} not checked"
    )
