"""The keys of a configuration, their types, ranges and defaults."""
