"""Many runs of one command: which, carried out where, kept as they finish, and what they come to."""
