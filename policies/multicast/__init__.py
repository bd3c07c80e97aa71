"""Which paths parameters take from the replicas and hosts that hold them to the replicas that load."""
