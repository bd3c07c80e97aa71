"""``servetwin support``: which step times, KV memory, starts and links a combination has."""
