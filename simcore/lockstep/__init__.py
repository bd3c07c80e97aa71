"""Data-parallel groups: ranks whose steps begin together, because they share experts."""
