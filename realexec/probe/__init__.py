"""Reports what this machine has for real workers, what they will use, what is missing and how to get it."""
