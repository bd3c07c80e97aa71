"""Errors shown to users of the hardware models (hwmodels imports no other package of this project)."""


class HardwareError(Exception):
    """One sentence that names the file, key or quantity and says what to write instead; exit status 2."""
