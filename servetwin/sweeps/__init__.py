"""Many runs of one command: their points, where they run, how results are stored and summarized."""
