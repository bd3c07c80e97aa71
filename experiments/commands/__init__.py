"""What the commands take and print."""
