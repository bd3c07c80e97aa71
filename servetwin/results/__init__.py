"""The metrics of a run, and its result folder."""
