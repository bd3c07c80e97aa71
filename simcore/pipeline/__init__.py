"""Replicas whose model is cut into stages: several batches in flight, one after the other."""
