"""Makes policies from their names: which packages may define them, and their parameters."""
