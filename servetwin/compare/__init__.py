"""Compares a simulated run with per-request timings that were measured elsewhere."""
