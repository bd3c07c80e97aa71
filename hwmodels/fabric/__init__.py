"""Flows that share links max-min fairly, and the times at which they end."""
