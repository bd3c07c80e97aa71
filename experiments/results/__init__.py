"""What a run measures, and the folder it leaves."""
