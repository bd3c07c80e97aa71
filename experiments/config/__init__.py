"""What a configuration is: its keys, their types, ranges and defaults."""
