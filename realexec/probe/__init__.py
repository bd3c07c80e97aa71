"""What this machine has for real workers, what of it they will use, what is missing and how to get it."""
