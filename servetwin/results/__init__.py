"""The metrics of a run, and its result folder."""

import nativecore  # noqa: F401  (finds the compiled modules, if there are any)
