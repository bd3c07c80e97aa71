"""The simulated world: SimPy advances virtual time, hardware models say how long each action takes."""

import nativecore  # noqa: F401  (finds the compiled modules, where there are any)
