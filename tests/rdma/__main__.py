"""make test-rdma: the transports' tests over soft-RoCE in one virtual machine, reads between two, a real run.

Exit status 0: all passed, 1: something failed, 3: this machine cannot run it, and why is said.
"""

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from servetwin.cli import main as cli
from tests.rdma import one_run
from tests.rdma.initrd import initrd
from tests.rdma.machine import Guest, Lab, joined
from tests.rdma.packages import CannotRun, brought

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = {"suite": 1500.0, "two": 600.0, "run": 1200.0}
# tests/realexec/test_transports.py is the suite that every transport passes.
SUITE = (
    "python -m pytest -q -p no:cacheprovider --durations=5 -k 'verbs and not shaped' "
    "tests/realexec/test_transports.py tests/realexec/test_verbs.py"
)
LOOK_S = 1.0
RUN = "python -m tests.rdma.one_run"


def main(words: list[str]) -> int:
    parts = words or list(WAYS)
    folder = Path(tempfile.gettempdir()) / "servetwin-rdma"
    began_s = time.monotonic()
    try:
        lab = laboratory(brought(folder))
    except CannotRun as why:
        print(f"make test-rdma did not run: {why}")
        return 3
    print(f"machine made in {time.monotonic() - began_s:.0f} s", flush=True)
    return max([WAYS[part](lab) for part in parts])


def laboratory(folder: Path) -> Lab:
    """A fresh share, with the packages that the guest has beside this host's."""
    shutil.rmtree(folder / "share", ignore_errors=True)
    shutil.copytree(folder / "extra", folder / "share" / "extra", symlinks=True)
    kernel = initrd(folder / "kernel", folder / "busybox", folder / "initrd")
    return Lab(folder, kernel)


def script(words: str) -> str:
    """For the guest's shell: in this checkout, with this interpreter."""
    return (
        "export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1\n"
        f"cd {ROOT} && exec {Path(sys.executable).parent}/{words}\n"
    )


def suite(lab: Lab) -> int:
    return _ran(lab, "suite", [Guest("suite", "10.9.0.1", script(SUITE))])


def two(lab: Lab) -> int:
    (lab.folder / "cable").unlink(missing_ok=True)
    ways = {"serve": "10.9.0.1", "read": "10.9.0.2"}
    guests = [
        Guest(way, ip, script(f"python -m tests.rdma.two_hosts {way} {ip}"), joined(lab.folder, at))
        for at, (way, ip) in enumerate(ways.items())
    ]
    return _ran(lab, "two", guests, judge=guests[1])


def run(lab: Lab) -> int:
    """The journal is replayed here, by another process than the one that wrote it and on a real processor."""
    status = _ran(lab, "run", [Guest("run", "10.9.0.1", script(RUN))])
    return status or cli.run(["replay", str(lab.share / one_run.OUT.name)])


WAYS = {"suite": suite, "two": two, "run": run}


def _ran(lab: Lab, part: str, guests: Sequence[Guest], judge: Guest | None = None) -> int:
    judge = judge or guests[0]
    began_s = time.monotonic()
    running, said = list["subprocess.Popen[bytes]"](), ""
    try:
        for guest in guests:
            running.append(lab.start(guest))
            time.sleep(1.0)  # who listens at the cable comes first
        judged = running[guests.index(judge)]
        while judged.poll() is None and time.monotonic() - began_s < LIMIT_S[part]:
            time.sleep(LOOK_S)
            said = _told(lab.said(judge), said)
        if judged.poll() is None:
            print(f"{part}: not done after {LIMIT_S[part]:.0f} s")
    finally:  # of an interrupt too: a machine left running computes on
        for one in running:
            one.kill()
            one.wait()
    passed = lab.status(judge) == "0"
    _told(lab.said(judge) or lab.console(judge), said)
    print(f"{part}: {'passed' if passed else 'FAILED'} in {time.monotonic() - began_s:.0f} s", flush=True)
    return 0 if passed else 1


def _told(now: str, before: str) -> str:
    """What is new is printed while the machine still runs: emulated ones take minutes."""
    print(now[len(before) :], end="", flush=True)
    return now


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main(sys.argv[1:]))
