"""Compares the simulator's times with closed forms, a naive engine and other simulators."""
