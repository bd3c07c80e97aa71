"""The control plane: what is remembered of requests, KV memory and replicas, and what follows from an event.

Stdlib only, and free of clocks, I/O and randomness: the same objects run under virtual and wall-clock time.
"""

from nativecore import native_path

__path__ = native_path(__name__, __path__)
