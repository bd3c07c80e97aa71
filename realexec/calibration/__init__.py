"""Measures how long steps, transfers and starts take on this machine, with real worker processes."""
