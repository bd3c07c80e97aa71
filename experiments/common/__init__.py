"""Figures of the papers made again: paper value, ours, their ratio and a verdict, row by row."""
