"""Debian packages that a machine for RDMA tests is made of: downloaded and unpacked, not installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

GUEST = (
    "python3-pyverbs", "ibverbs-providers", "libibverbs1", "librdmacm1", "libnl-3-200", "libnl-route-3-200",
    "iproute2", "libmnl0", "libbpf1", "libelf1", "libcap2",
)  # fmt: skip
QEMU = "qemu-system-x86_64"


class CannotRun(Exception):
    """What keeps this machine from it, in a sentence."""


def brought(folder: Path) -> Path:
    """``folder`` with ``kernel`` (unpacked), ``busybox`` and ``extra``, the guest's own packages."""
    if sys.platform != "linux" or os.uname().machine != "x86_64" or not shutil.which("apt-get"):
        raise CannotRun("it wants Debian's packages on x86_64 Linux, and there is no apt-get here")
    _qemu()
    if (folder / "whole").exists():
        return folder
    archives = folder / "archives"
    archives.mkdir(parents=True, exist_ok=True)
    archives.chmod(0o777)  # apt downloads as a user of its own
    kernel = _output("apt-cache", "depends", "linux-image-amd64").split("Depends: ")[1].split()[0]
    _apt("download", kernel, "busybox-static", *GUEST, where=archives)
    for archive in archives.glob("*.deb"):
        part = {"linux": "kernel", "busyb": "busybox"}.get(archive.name[:5], "extra")
        subprocess.run(["dpkg-deb", "-x", archive, folder / part], check=True)
    _merge_usr(folder / "extra")
    (folder / "whole").touch()
    return folder


def _qemu() -> None:
    if shutil.which(QEMU):
        return
    if os.geteuid() != 0:
        raise CannotRun(f"{QEMU} is missing: write `apt-get install qemu-system-x86`")
    _apt("update", where=Path.cwd())
    _apt("install", "-y", "--no-install-recommends", "qemu-system-x86", where=Path.cwd())


def _apt(*words: str, where: Path) -> None:
    done = subprocess.run(["apt-get", "-q", *words], cwd=where, text=True, capture_output=True)
    if done.returncode:
        raise CannotRun(f"apt-get {words[0]} failed: {done.stderr.strip().splitlines()[-1]}")


def _output(*words: str) -> str:
    return subprocess.run(words, check=True, text=True, capture_output=True).stdout


def _merge_usr(root: Path) -> None:
    """/bin, /lib and /sbin are links into /usr where this is laid over."""
    for name in ("bin", "lib", "sbin"):
        if (root / name).is_dir():
            shutil.copytree(root / name, root / "usr" / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(root / name)
