"""Instances that come and go: the load monitor's looks, placement, drains."""
