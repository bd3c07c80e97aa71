"""Commands of README and docs: how they are found, which are parsed only, what capital words stand for."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*/[A-Z]*.md")))
# A line of its own, or in a sentence when it names its out=.
_LINE: Final = r"(?m)^(?:    |\t)?(?:\$ )?(?:[A-Z_]+=\S+ )?((?:servetwin|realexec) .*)$"
_IN_A_SENTENCE: Final = r"`(servetwin new-policy [^`]+|(?:servetwin|realexec)\s[^`]*\sout=(?:out/|DIR)[^`]*)`"

NETWORK, GPU, VM, LONG = "network", "GPU", "VM", "over a minute"
SERVES: Final = "answers until Ctrl-C; tests/servetwin/test_explore.py starts it"
LIKE_REAL_RUNS: Final = "over a minute with the rest of its page; those of REAL_RUNS are run"
INSTALL: Final = "an install beside the environment: make test-ray, make test-nixl"
# (page, how the command begins, why it is not run). A test asks of every line whether it is still needed.
PARSED_ONLY: Final = (
    ("EXPLORE.md", "servetwin explore", SERVES),
    ("TRACES.md", "servetwin traces fetch", NETWORK),
    ("REALEXEC.md", "realexec fetch-model", NETWORK),
    ("COMMANDS.md", "realexec fetch-model", NETWORK),
    ("REALEXEC.md", "realexec run model=smollm2_135m", NETWORK),
    ("REAL_RUNS.md", "realexec run system=blitzscale system.instances.split=false cluster=local "
     "workers=3", NETWORK),
    ("REAL_WORKERS.md", "realexec run system=blitzscale", LIKE_REAL_RUNS),
    ("REAL_WORKERS.md", "realexec calibrate", LONG),
    ("CALIBRATE.md", "realexec", LONG),
    ("GPU.md", "realexec run device=cuda", GPU),
    ("GPU.md", "realexec random-checkpoint", GPU),
    ("RDMA.md", "realexec run transport=verbs", VM),
    ("MANY_HOSTS.md", "realexec run launcher=ray", INSTALL),
    ("HTTP.md", "realexec run world=http http.start=vllm serve MODEL", INSTALL),
    ("KUBERNETES.md", "realexec run world=http http.launcher=kubernetes", "a Kubernetes cluster"),
    ("REPRODUCE_A_PAPER.md", "servetwin reproduce blitzscale fig17", LONG),
    ("REPRODUCTION.md", "servetwin reproduce blitzscale all", LONG),
    ("REPRODUCTION.md", "servetwin reproduce all", LONG),
    ("REPRODUCTION.md", "servetwin reproduce scale all", LONG),
    ("REPRODUCTION.md", "servetwin reproduce scalers all", LONG),
    ("LLUMNIX.md", "servetwin reproduce llumnix all", LONG),
    ("BEYOND_LLUMNIX.md", "servetwin reproduce llumnix notice", LONG),
    ("QUART.md", "servetwin reproduce quart", LONG),
)  # fmt: skip

# What a word of a page stands for that is the reader's own to choose, or comes from another page.
_LAYERS: Final = "$SERVETWIN_PROFILES/llmservingsim/RTX4090/meta-llama/Llama-3.1-8B"
_MOE: Final = "$SERVETWIN_PROFILES/llmservingsim/RTXPRO6000/Qwen/Qwen3-30B-A3B-Instruct-2507"
_SPLITWISE: Final = "splitwise_llama2-70b_tp2_tp8.csv"
STANDS_FOR: Final[Mapping[str, Mapping[str, str]]] = {
    "ADVISE.md": {"metrics.json": str(ROOT / "tests" / "data" / "production" / "prometheus.json")},
    "COMPARE.md": {"DIR": "out/sim", "MEASURED": "measured.csv"},
    "MOE.md": {"$Q": _MOE, "$P": "$SERVETWIN_PROFILES"},
    "PROFILES.md": {_SPLITWISE: f"$SERVETWIN_PROFILES/{_SPLITWISE}"},
    "STEP_TIMES.md": {"$P": "$SERVETWIN_PROFILES", "FOLDER": _LAYERS, "GPU": "rtx4090",
                      "MODEL": "llama3_1_8b"},
    "SWEEP.md": {"DIR": "out/first"},
}  # fmt: skip
# What the reader of a page has at hand before its first command.
_SMALL: Final = "trace=azure_conv_like trace.requests=12 trace.rate_per_s=20 cluster=a100_x2"
BEFORE: Final[Mapping[str, tuple[str, ...]]] = {
    "COMPARE.md": (
        f"servetwin simulate {_SMALL} out=out/sim",
        f"servetwin sweep {_SMALL} seed=0,1 out=out/swept",
    ),
    "CONFIGURATION.md": ("servetwin traces sample azure_conv_like requests=20 out=conv.parquet",),
}  # fmt: skip
# A command that is to be refused.
STATUS: Final = (
    ("FAULTS.md", "servetwin simulate system=blitzscale cluster=blitz_b driver.carries_out=", (2,)),
)


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a page, as it stands there; the first word is servetwin or realexec."""

    page: str
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """As it stands there, without quotes."""
        return " ".join(self.words)

    @property
    def verb(self) -> str:
        """The first two words."""
        return " ".join(self.words[:2])

    @property
    def out(self) -> str:
        """The value of ``out=``; empty without one."""
        return next((word.partition("=")[2] for word in self.words if word.startswith("out=")), "")


def commands() -> list[Command]:
    """Those of every page, in order, remarks left out. A line with ``...`` is a form to fill in."""
    return [command for page in PAGES for command in of_page(page)]


def of_page(page: Path) -> Iterator[Command]:
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for match in re.finditer(f"{_LINE}|{_IN_A_SENTENCE}", text):
        line = " ".join(match[2].split()) if match[2] else match[1]
        bare = re.split(r"\s{2,}(?=[#a-zA-Z0-9])(?![\w./\[]+=)", line.partition(" # ")[0])[0]
        if "..." not in bare and "|" not in bare:
            yield Command(page.name, tuple(shlex.split(bare)))


def why_parsed_only(command: Command) -> str | None:
    """The reason of the list; None for a command that is run."""
    return next((why for page, begin, why in PARSED_ONLY if _begins(command, page, begin)), None)


def stale_lines() -> list[tuple[str, str]]:
    """Page and beginning, of every list here, which no command of the page has any more."""
    every = commands()
    lines = [(page, begin) for page, begin, _ in (*PARSED_ONLY, *STATUS)]
    words = [(page, name) for page, stands in STANDS_FOR.items() for name in stands]
    return [line for line in lines if not any(_begins(one, *line) for one in every)] + [
        (page, name) for page, name in words if not any(name in one.text for one in every if one.page == page)
    ]


def statuses_of(command: Command) -> tuple[int, ...]:
    """Exit statuses that the page tells: 0, where it says no other."""
    return next((told for page, begin, told in STATUS if _begins(command, page, begin)), (0,))


def own_classes() -> dict[str, str]:
    """The Python blocks of all pages by the classes that they define."""
    blocks = [
        block
        for page in PAGES
        for block in re.findall(r"(?s)```python\n(.*?)```", page.read_text(encoding="utf-8"))
    ]
    return {name: block for block in blocks for name in re.findall(r"(?m)^class (\w+)", block)}


def _begins(command: Command, page: str, begin: str) -> bool:
    return command.page == page and command.text.startswith(begin)
