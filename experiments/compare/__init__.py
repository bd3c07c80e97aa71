"""A simulated run held against per-request timings that were measured elsewhere."""
