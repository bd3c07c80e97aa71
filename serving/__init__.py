"""The control plane: keeps the state of requests, KV memory and replicas; decides what follows from events.

Uses the standard library only, and no clock, I/O or randomness: the same objects run under virtual and
wall-clock time.
"""

import nativecore  # noqa: F401  (finds the compiled modules, if there are any)
