"""Measured serving runs of the field, simulated as their clients loaded them, beside AIConfigurator."""
