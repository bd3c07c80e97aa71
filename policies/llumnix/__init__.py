"""Llumnix (OSDI 2024): dispatch by freeness, and migration of running requests between unequal instances."""
