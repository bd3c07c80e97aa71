"""Decisions only: every policy looks at a view and returns data. One class and one YAML file each."""
