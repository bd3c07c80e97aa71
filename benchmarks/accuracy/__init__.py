"""Measured runs of serving engines beside simulations of the same servers and loads: docs/ACCURACY.md."""
