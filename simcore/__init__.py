"""The simulated world: SimPy advances virtual time, hardware models say how long each action takes."""
