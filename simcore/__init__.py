"""The simulated world: SimPy advances virtual time, hardware models say how long each action takes."""

from nativecore import native_path

__path__ = native_path(__name__, __path__)
