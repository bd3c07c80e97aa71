"""The simulated world: SimPy advances virtual time, hardware models give the duration of each action."""

import nativecore  # noqa: F401  (finds the compiled modules, where there are any)
