"""Decisions only: a policy reads a view and returns data. One class and one YAML file each."""

import nativecore  # noqa: F401  (finds the compiled modules, where there are any)
