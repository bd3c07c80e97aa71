"""The errors a user is meant to read."""


class UserError(Exception):
    """One sentence that names the file, row or key and says what to write instead; commands exit with 2."""


class PolicyError(UserError):
    """A policy raised something, or answered what it may not: who, asked what, at which event, and why.

    ``may``: what the method may answer. ``event`` is None outside of ``Controller.handle``, which sets it.
    """

    def __init__(self, policy: str, method: str, did: str, may: str, event: str | None = None) -> None:
        super().__init__(policy, method, did, may, event)
        self.policy, self.method, self.did, self.may, self.event = policy, method, did, may, event

    def __str__(self) -> str:
        at = "outside of events" if self.event is None else f"event {self.event}"
        return f"policy {self.policy}, method {self.method}, {at}: it {self.did}; it may answer {self.may}"
