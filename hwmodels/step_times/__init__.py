"""How long a step takes: the ladder of step-time models, their fits and errors, and rows of integers."""
