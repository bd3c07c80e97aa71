"""Proof that a change left all results as they were: recorded runs, compared value by value."""
