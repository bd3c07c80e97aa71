"""From the name of a policy to the object: whose it may be, and what it takes."""
