"""Describes one request's or one instance's events from a journal, in plain words and in order of time."""
