"""The journal, its replay, and the invariants."""
