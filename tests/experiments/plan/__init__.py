"""Searches over simulated runs."""
