"""Profiles: measured times of one model on one GPU, their files, and whether they fit a run."""
