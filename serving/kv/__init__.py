"""Moves KV between instances: hand-overs, migrations and their transfers."""
