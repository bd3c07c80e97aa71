"""Launchers start worker processes: on this machine, or on the nodes of a Ray cluster."""
