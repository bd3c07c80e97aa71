"""A worker process: receives messages, computes steps, moves bytes."""
