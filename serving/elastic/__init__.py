"""Elastic instances: the load monitor's periodic looks, placement, drains."""
