"""Where worker processes are started: on this machine, or on the nodes of a Ray cluster."""
