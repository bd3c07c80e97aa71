"""Prefill and decode on the same instances, and migration of their running requests."""
