"""Prefill and decode on separate instances, and migration of decoding requests."""
