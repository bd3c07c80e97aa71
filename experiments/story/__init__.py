"""What a journal tells of one request or one instance, in plain words and in order of time."""
