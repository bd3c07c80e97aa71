"""The file of a GPU that the catalogue does not have."""

OWN = """\
memory_bytes: {value: 1.92e+11, source: datasheet}
memory_bandwidth_bytes_per_s: {value: 8.0e+12, source: datasheet}
flops_per_s: {value: 2.25e+15, source: datasheet}
activation_reserve_bytes: {value: 4.0e+9, source: rough}
"""
