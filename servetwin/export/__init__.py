"""A run's requests under the names that other tools give them."""
