"""Scaling policies: how many instances a model has."""
