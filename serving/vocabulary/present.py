"""The time of the event that is being handled, for those who write down when something happened."""


class Present:
    """Moved on by the controller alone."""

    __slots__ = ("now_ns",)

    def __init__(self) -> None:
        self.now_ns = 0
