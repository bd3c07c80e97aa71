"""Flows that share links max-min fairly, and when they end."""
