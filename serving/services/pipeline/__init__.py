"""Models in stages that answer in one pass."""
