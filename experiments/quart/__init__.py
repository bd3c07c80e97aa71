"""Figures of QUART made again: what is run, what is held against the paper."""
