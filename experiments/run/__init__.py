"""A simulated run, a real one, a replay."""
