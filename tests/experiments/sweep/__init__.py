"""Many runs of one command."""
