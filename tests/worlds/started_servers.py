"""Runs that start made-up servers as processes: their words, and which of their processes are left."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.worlds.processes import ROOT, wait_until

MAIN = "from servetwin.cli.realexec import main\nif __name__ == '__main__': main()"
LOAD = ("trace.limit=60", "trace.rate_scale=10", "trace.tokens_scale=0.1", "http.check_tokens=100")


def script(folder: Path, *settings: str, before: str = "") -> str:
    """A command that starts a made-up server, with a child and a daemon as vLLM has an engine."""
    file = folder / "server.sh"
    python = shlex.quote(sys.executable)
    mark = shlex.quote(f"log={folder / 'requests.log'}")
    own = " ".join(["port=$1", "host=$2", "step_s=0.01", "kv_blocks=128", mark, *settings])
    file.write_text(
        f"cd {shlex.quote(str(ROOT))}\n{before}\n"
        f"{python} -c 'import time; time.sleep(1000)' {mark} &\n"
        f"setsid {python} -c 'import time; time.sleep(1000)' {mark} &\n"
        f"exec {python} -m tests.worlds.fake_openai {own}\n"
    )
    return f"sh {file} {{port}} {{host}}"


def words(folder: Path, command: str, *more: str, servers: int = 2, load: Sequence[str] = LOAD) -> list[str]:
    """Of a run into the folder ``run``."""
    system = ("system=allcache", "system.instances.split=false", "journal=true")
    start = f"http.start='{command}'"
    return ["run", "world=http", start, f"workers={servers}", *system, *load, *more, f"out={folder / 'run'}"]


def left(folder: Path) -> list[int]:
    """Processes of the servers and their keepers that run, of whatever session."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = file.read_bytes().decode(errors="replace")
            state = (file.parent / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        except OSError:
            continue
        mine = f"log={folder / 'requests.log'}" in text or f"{folder / 'server.sh'}\0" in text
        if mine and state not in "ZX" and "http.start" not in text:
            found.append(int(file.parent.name))
    return found


def of_word(folder: Path, word: str) -> list[int]:
    """Those with this word in their command line."""
    return [one for one in left(folder) if word.encode() in Path(f"/proc/{one}/cmdline").read_bytes()]


def wait_gone(folder: Path) -> None:
    """Until none is left."""
    wait_until(lambda: not left(folder), "a process of a server is left")
