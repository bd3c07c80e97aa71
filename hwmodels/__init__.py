"""How much and how long: GPUs, models, step times, topologies, loading and profiles."""

import nativecore  # noqa: F401  (finds the compiled modules, where there are any)
