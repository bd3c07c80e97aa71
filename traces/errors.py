"""Errors a user of the trace readers is meant to read (traces imports nothing of ours)."""


class TraceError(Exception):
    """One sentence that names the file, row or key and says what to write instead; commands exit with 2."""
