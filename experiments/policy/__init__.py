"""From the name of a policy to the object: which packages may define it, and its parameters."""
