"""One replica in virtual time: its runs, its residents, the times of their tokens."""
