"""What policies see and may answer, a module for each kind, and how their faults are told."""
