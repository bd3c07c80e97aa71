"""How much and how long: GPUs, models, step times, topologies, loading and profiles."""

from nativecore import native_path

__path__ = native_path(__name__, __path__)
