"""Connections between processes of a run: frames, mutual proof of the run's secret, listeners."""
