"""Measured runs of engines beside simulations of the same servers and loads: docs/explanation/ACCURACY.md."""
