"""Faults of the simulated world, and when they happen."""
