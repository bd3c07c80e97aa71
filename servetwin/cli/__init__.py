"""Arguments and output of the commands."""
