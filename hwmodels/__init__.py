"""Sizes and times: GPUs, models, step times, topologies, loading and profiles."""

import nativecore  # noqa: F401  (finds the compiled modules, where there are any)
