"""Simulated runs, real runs and replays."""
