"""Inter-token gaps as a run notes them: four numbers for each arithmetic sequence, counted by the reader."""


class GapRuns:
    """``noted``: first, slope, steps and sequences of one run after the other, in fixed point.

    Gaps from ``greatest_fixed`` on are only counted, in ``over``; ``largest`` is the largest of those.
    """

    __slots__ = ("_greatest_fixed", "_note", "largest", "noted", "over")

    def __init__(self, greatest_fixed: int) -> None:
        self._greatest_fixed = greatest_fixed
        self.noted: list[int] = []
        self._note = self.noted.extend
        self.over = 0
        self.largest = 0

    def add(self, first: int, slope: int, steps: int, sequences: int) -> None:
        """Add ``sequences`` gaps each of first + slope * i, i in 0..steps-1 (fixed-point ns, slope >= 0)."""
        if first < self._greatest_fixed:
            self._note((first, slope, steps, sequences))
        else:
            self.over += steps * sequences
            self.largest = max(self.largest, first + slope * (steps - 1))
