"""KV on its way between instances."""
