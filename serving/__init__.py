"""The control plane: what is remembered of requests, KV memory and replicas, and what follows from an event.

Stdlib only, and free of clocks, I/O and randomness: the same objects run under virtual and wall-clock time.
"""

import nativecore  # noqa: F401  (finds the compiled modules, where there are any)
