"""Default efficiency (share of the datasheet rate) and latency of each kind of link.

A cluster file can override each of them, with its own source.
"""

from types import MappingProxyType
from typing import Final

from hwmodels.topology.spec import LinkClass

_COUNTED: Final = "the NICs' efficiency already counts it"
_STATED: Final = "rates of storage and host memory are given as read by a program"
_ROUGH: Final = "rough, the order of magnitude of the hardware"
_NVLINK: Final = (
    "broadcast of 16 GB at 1.6 Tbps, 80 ms by the datasheet, takes 120 ms (BlitzScale, OSDI 2025)"
)
_PCIE: Final = (
    "48 GB from host memory over 2 x 128 Gbps, 1.5 s by the datasheet, take 2.0 s "
    "(BlitzScale, OSDI 2025, Figure 21, AllCache)"
)
_RDMA: Final = (
    "14 GB at 200 Gbps, 560 ms by the datasheet, take 650 ms (first version of the BlitzScale paper)"
)

# About a microsecond from GPU to GPU over either network, 0.3 us through a switch, 0.1 ms for an SSD's first
# block and 10 ms for a store's first answer. Loads take milliseconds at least, so none of these matters.
DEFAULT_CLASSES: Final = MappingProxyType(
    {
        "ssd": LinkClass(1.0, _STATED, 1e-4, _ROUGH),
        "remote": LinkClass(1.0, _STATED, 1e-2, _ROUGH),
        "dram": LinkClass(1.0, _STATED, 1e-7, _ROUGH),
        "pcie": LinkClass(0.75, _PCIE, 5e-7, _ROUGH),
        "pcie_switch": LinkClass(0.75, _PCIE, 1.5e-7, _ROUGH),
        "nvlink": LinkClass(0.67, _NVLINK, 1e-6, _ROUGH),
        "nic": LinkClass(0.86, _RDMA, 1e-6, _ROUGH),
        "leaf": LinkClass(1.0, _COUNTED, 3e-7, _ROUGH),
        "spine": LinkClass(1.0, _COUNTED, 3e-7, _ROUGH),
    }
)
