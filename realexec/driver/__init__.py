"""The wall-clock driver: starts worker processes, runs requests on them, checks their tokens."""
