"""Decisions only: every policy looks at a view and returns data. One class and one YAML file each."""

from nativecore import native_path

__path__ = native_path(__name__, __path__)
