"""One replica in virtual time: its runs, its resident requests, the times of their tokens."""
