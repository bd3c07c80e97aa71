"""QUART: replicas of each pipeline stage by delay and burstiness, key stages in host memory; baselines."""
