"""The one error a user is meant to read."""


class UserError(Exception):
    """One sentence that names the file, row or key and says what to write instead; commands exit with 2."""
