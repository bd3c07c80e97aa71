"""The file of a GPU that the catalogue does not have, and of hosts of it with their links."""

OWN = """\
memory_bytes: {value: 1.92e+11, source: datasheet}
memory_bandwidth_bytes_per_s: {value: 8.0e+12, source: datasheet}
flops_per_s: {value: 2.25e+15, source: datasheet}
activation_reserve_bytes: {value: 4.0e+9, source: rough}
"""

# Two hosts of such GPUs: one file has the GPU's numbers and the links of its hosts.
RACK = """\
gpu:
"""
RACK += "".join(f"  {line}\n" for line in OWN.splitlines())
RACK += """\
  all_reduce: {same_as: h200, source: rough}
hosts: 2
gpus_per_host: 8
source: ours
host_memory: {bytes: 2.0e+12, source: ours}
pcie: {gbps: 512, source: datasheet}
nvlink: {gbps: 7200, source: datasheet}
nic: {gbps: 400, source: datasheet}
ssd: {gbps: 200, per: host, source: ours}
"""
