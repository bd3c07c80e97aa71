"""Tells the events of one request or one instance from a journal, in plain words and in order of time."""
