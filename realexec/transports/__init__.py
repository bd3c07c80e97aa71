"""Bulk bytes between arenas: one-sided reads through shared memory or TCP, at full or at a shaped rate."""
