"""Bulk transfers between arenas: reads through shared memory, TCP or NIXL, at full or at a shaped rate."""
