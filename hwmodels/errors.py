"""Errors a user of the hardware models is meant to read (hwmodels imports nothing of ours)."""


class HardwareError(Exception):
    """One sentence that names the file, key or quantity and says what to write instead; exit status 2."""
