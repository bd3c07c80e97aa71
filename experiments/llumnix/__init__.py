"""Figures of Llumnix (OSDI 2024) made again: set-ups, what they are held against, a module for each."""
