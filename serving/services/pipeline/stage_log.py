"""What each stage of a pipeline did with each request, as columns of integers."""

from array import array
from typing import Final

FIELDS: Final = ("request", "stage", "replica", "arrived_ns", "began_ns", "ended_ns")


class StageLog:
    """A row of ``FIELDS`` for every pass of a request, in the order in which the passes ended.

    A pass begins when the controller issues its ``Run``: waiting for its inputs, for cores, or for a GPU that
    another replica uses, is part of it.
    """

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows = array("q")

    def add(
        self, request: int, stage: int, replica: int, *, arrived_ns: int, began_ns: int, ended_ns: int
    ) -> None:
        """Record that a stage has finished a request."""
        self._rows.extend((request, stage, replica, arrived_ns, began_ns, ended_ns))

    @property
    def rows(self) -> "array[int]":
        """All rows, one after the other, ``len(FIELDS)`` numbers each."""
        return self._rows
