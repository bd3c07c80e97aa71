"""Slurm of one node on this machine, from Debian's packages: installed, or unpacked into SERVETWIN_SLURM.

apt-get download slurmctld slurmd slurm-client slurm-wlm-basic-plugins libmunge2 libhwloc15, and dpkg -x each
into one folder: nothing is installed, and no daemon of the system is asked.
"""

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.worlds.free_ports import free_port
from tests.worlds.processes import wait_until

_LIBRARIES: Final = "usr/lib/x86_64-linux-gnu"
_CONF: Final = """ClusterName=here
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={node_port}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@contextmanager
def local_slurm(folder: Path) -> Iterator[None]:
    """sbatch and its like on the path, a node that takes jobs; skips the test where Slurm cannot be found."""
    root = os.environ.get("SERVETWIN_SLURM", "")
    programs = {name: _program(root, name) for name in ("slurmctld", "slurmd", "sbatch")}
    if missing := [name for name, path in programs.items() if path is None]:
        pytest.skip(f"Slurm's {', '.join(missing)} are not here: see tests/worlds/local_slurm.py")
    before = dict(os.environ)
    os.environ.update(_environment(folder, root))
    daemons = list[subprocess.Popen[bytes]]()
    step = _program(root, "slurmstepd")
    try:
        for words in (["slurmctld", "-D", "-i"], ["slurmd", "-D", *(["-d", step] if step else [])]):
            with (folder / f"{len(daemons)}.log").open("wb") as log:
                command = [str(programs[words[0]]), *words[1:]]
                daemons.append(subprocess.Popen(command, stdout=log, stderr=log))
        wait_until(_node_is_idle, f"the node takes no jobs: see {folder}/0.log and 1.log")
        yield
        wait_until(_no_jobs, "jobs go on")  # else their slurmstepd waits for a controller that is gone
    finally:
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()
        os.environ.clear()
        os.environ.update(before)


def _program(root: str, name: str) -> str | None:
    """Debian calls some of them slurmd-wlm."""
    folders = [str(Path(root) / part) for part in ("usr/sbin", "usr/bin")] if root else []
    path = os.pathsep.join([*folders, os.environ.get("PATH", ""), "/usr/sbin"])
    return shutil.which(f"{name}-wlm", path=path) or shutil.which(name, path=path)


def _environment(folder: Path, root: str) -> dict[str, str]:
    """Where programs and libraries are, and a configuration of the folder's own."""
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    port, node_port = free_port(), free_port()
    text = _CONF.format(
        host=socket.gethostname().partition(".")[0], port=port, node_port=node_port,
        user=getpass.getuser(), folder=folder, cpus=os.cpu_count(),
    )  # fmt: skip
    found = {"SLURM_CONF": str(folder / "slurm.conf")}
    if root:
        libraries = Path(root) / _LIBRARIES
        text += f"PluginDir={libraries}/slurm-wlm\n"
        found["PATH"] = f"{root}/usr/bin:{os.environ.get('PATH', '')}"
        found["LD_LIBRARY_PATH"] = f"{libraries}/slurm-wlm:{libraries}"
    (folder / "slurm.conf").write_text(text, encoding="utf-8")
    plugin = "cgroup/v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "cgroup/v1"
    (folder / "cgroup.conf").write_text(f"CgroupPlugin={plugin}\n", encoding="utf-8")
    return found


def _no_jobs() -> bool:
    asked = subprocess.run(["squeue", "-h"], capture_output=True, text=True, check=False)
    return not asked.stdout.strip()


def _node_is_idle() -> bool:
    asked = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() == "idle"
