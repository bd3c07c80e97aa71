"""Decisions only: a policy reads a view and returns data. One class and one YAML file each."""
