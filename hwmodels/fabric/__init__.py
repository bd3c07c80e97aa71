"""Flows that share links max-min fairly, and when they end."""

from nativecore import native_path

__path__ = native_path(__name__, __path__)
