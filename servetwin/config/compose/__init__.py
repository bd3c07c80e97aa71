"""Composes one configuration from words and option files, and reads it back from a saved one."""
