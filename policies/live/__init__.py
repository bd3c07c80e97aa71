"""Which instances work while they load, and who runs which layers."""
