"""Errors whose text is meant for the user."""


class UserError(Exception):
    """One sentence that names the file, row or key and says what to write instead; commands exit with 2."""


class PlaceError(UserError):
    """Results cannot be written: out= is missing, taken, or no folder that can be written to."""


class PolicyError(UserError):
    """A policy raised something, or returned what its protocol does not allow.

    ``asked``: the question, as in "method dispatch". ``did``: what it returned or raised, and what is wrong
    with that. ``must``: what it must do instead. ``event`` is None outside of ``Controller.handle``, which
    sets it.
    """

    def __init__(self, policy: str, asked: str, did: str, must: str, event: str | None = None) -> None:
        super().__init__(policy, asked, did, must, event)
        self.policy, self.asked, self.did, self.must, self.event = policy, asked, did, must, event

    def __str__(self) -> str:
        at = "outside of events" if self.event is None else f"event {self.event}"
        return f"policy {self.policy}, {self.asked}, {at}: it {self.did}; it must {self.must}"
