"""Commands of a page, made small by rule and played in order: later ones find what earlier ones left."""

import io
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Final

from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from servetwin.sweeps.axes import axes_of
from tests.worlds.doc_commands import PAGES, STANDS_FOR, Command, own_classes, statuses_of, why_parsed_only

# Requests of a run: of a page with real workers so few that simulations and real runs have the same.
REQUESTS, REAL_REQUESTS = 20, 6
# Added to the words of a command, in place of what they say of the same keys.
SMALL: Final = {
    "servetwin simulate": ("trace.limit=N", "uncertainty=off", "overwrite=true"),
    "servetwin sweep": ("trace.limit=N", "processes=1", "search.trials=3"),
    "servetwin plan": ("trace.limit=N", "processes=1"),
    "servetwin reproduce": ("seeds=1", "sweeps=false", "processes=1"),
    "realexec run": ("trace.limit=N", "overwrite=true"),
    "realexec observe": ("trace.limit=N", "overwrite=true"),
    "realexec calibrate": ("quick=true",),
}
_SEARCH: Final = "search.trials"
_PASTED: Final = re.compile(r"(?ms)^    cat > (\w+\.\w+) <<'EOF'\n(.*?)^    EOF$")
_MISSING: Final = re.compile(r"was not found in|SERVETWIN_PROFILES")


def small(command: Command, requests: int) -> list[str]:
    """The words that are played: of a page's capital words what they stand for, few requests, points, seeds.

    Of an axis of a sweep the first and the last value; a story of a request that few requests do not have is
    one of request 3; resampled requests come in blocks of two.
    """
    stands = STANDS_FOR.get(command.page, {})
    words = [
        _shrunk(command, os.path.expandvars(_standing(word, stands)), requests) for word in command.words
    ]
    added = [word.replace("=N", f"={requests}") for word in SMALL.get(command.verb, ())]
    added = [word for word in added if word.partition("=")[0] != _SEARCH or "search." in command.text]
    if words[2:] in (["list"], ["--help"]) or words[3:] == ["list"]:
        return words
    keys = {word.partition("=")[0] for word in added}
    return [word for word in words if word.partition("=")[0] not in keys] + added


def _standing(word: str, stands: Mapping[str, str]) -> str:
    for name, meant in stands.items():
        word = re.sub(rf"(?<![\w/$.]){re.escape(name)}(?!\w)", meant.replace("\\", r"\\"), word)
    return word


def _shrunk(command: Command, word: str, requests: int) -> str:
    key, _, text = word.partition("=")
    if command.verb == "servetwin sweep" and key != "metrics":
        _, axes, _ = axes_of([word])
        return f"{key}={','.join(dict.fromkeys((axes[0].texts[0], axes[0].texts[-1])))}" if axes else word
    if command.verb == "servetwin story" and key == "request" and int(text) >= requests:
        return "request=3"
    return "trace.block_requests=2" if key == "trace.block_requests" else word


@dataclass(slots=True)
class Played:
    """What came of a page: failures told, commands that were not run by reason."""

    failed: list[str] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)


REAL: Final = "real workers: make test-real runs them"
NO_DATA: Final = "recorded traces or measured tables are not here"
UNMADE: Final = "what it reads is of a command that is not run"


def play(page: Sequence[Command], real: bool, servers: Sequence[str]) -> Played:
    """All of a page, in the current folder.

    ``real``: those that need torch too. ``servers``: two addresses, for the pages' ports 8101 and 8102.
    """
    played, unmade = Played(), set[str]()
    for name in dict.fromkeys(command.page for command in page):
        write_files(name)
    for command in page:
        words = [_at(word, servers) for word in small(command, REAL_REQUESTS if real else REQUESTS)]
        why = why_parsed_only(command) or _why_not_here(command, words, unmade, real)
        if why is None:
            why = _played(command, words, played)
        if why is not None:
            played.left_out.setdefault(why, []).append(command.text)
            unmade.add(_out(words))
        else:
            played.ran.append(command.text)
            unmade.discard(_out(words))
    return played


def needs_torch(command: Command) -> bool:
    own_workers = {
        "realexec calibrate": not any("://" in word for word in command.words),
        "realexec random-checkpoint": True,
        "realexec run": "world=http" not in command.words,
    }
    return own_workers.get(command.verb, False)


def _why_not_here(command: Command, words: Sequence[str], unmade: set[str], real: bool) -> str | None:
    if needs_torch(command) and not real:
        return REAL
    if any("$SERVETWIN" in word for word in words):
        return NO_DATA
    reads = [word.rpartition("=")[2] for word in words[2:] if not word.startswith("out=")]
    if any(_is_of(path, made) for path in reads for made in unmade if made):
        return UNMADE
    return None


def _is_of(path: str, made: str) -> bool:
    """Whether what a command made is read there, lies in that folder or is a part of it."""
    return path == made or path.startswith((f"{made}/", f"{made}-")) or made.startswith(f"{path}/")


def _played(command: Command, words: list[str], played: Played) -> str | None:
    """Runs it; the reason when its data is not here."""
    _prepare(words)
    words, redirected = (words[: words.index(">")], words[-1]) if ">" in words else (words, "")
    run = cli.run if words[0] == "servetwin" else realexec_cli.run
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run(words[1:])
    if redirected:
        Path(redirected).write_text(out.getvalue(), encoding="utf-8")
    if status == 2 and _MISSING.search(err.getvalue()):
        return NO_DATA
    if status not in statuses_of(command):
        played.failed.append(
            f"{command.page}: {shlex.join(words)}\n  status {status}: {err.getvalue().strip()}"
        )
    return None


def _prepare(words: Sequence[str]) -> None:
    """Writes what the reader has: a policy's file, a measured run, the folder a file goes to."""
    write_policies(words)
    if "measured.csv" in words:
        _measured(Path(words[2]))
    if out := _out(words):
        Path(out).parent.mkdir(parents=True, exist_ok=True)


def write_policies(words: Sequence[str]) -> None:
    """Files of the policies that the words name as ``module:Class``, from the Python blocks of the pages."""
    blocks = own_classes()
    for module, name in re.findall(r"(\w+):([A-Z]\w+)", " ".join(words)):
        if name in blocks:
            Path(f"{module}.py").write_text(blocks[name], encoding="utf-8")


def write_files(page: str) -> None:
    """The files that the page's reader pastes: ``cat > NAME <<'EOF'``, lines, ``EOF``."""
    for path in PAGES:
        if path.name == page:
            for name, text in _PASTED.findall(path.read_text(encoding="utf-8")):
                Path(name).write_text(dedent(text), encoding="utf-8")


def _measured(run: Path) -> None:
    """measured.csv: the requests of a run, each a tenth later than simulated."""
    import pandas as pd

    rows = pd.read_parquet(run / "requests.parquet")
    kept = rows[["request", "prompt_tokens", "output_tokens", "ttft_ms", "e2e_ms"]]
    kept.assign(ttft_ms=kept.ttft_ms * 1.1, e2e_ms=kept.e2e_ms * 1.1).to_csv("measured.csv", index=False)


def _out(words: Sequence[str]) -> str:
    if ">" in words:
        return words[-1]
    return next((word.partition("=")[2] for word in words if word.startswith("out=")), "")


def _at(word: str, servers: Sequence[str]) -> str:
    """The pages' servers stand at ports 8101 and 8102."""
    for place, address in enumerate(servers, 1):
        word = word.replace(f"http://127.0.0.1:810{place}", address)
    return word
