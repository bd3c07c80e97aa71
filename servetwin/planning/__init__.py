"""Searches over simulated runs: fewest GPUs, highest rate, cheapest layout that meets an objective."""
