"""Policy protocols: what each kind sees and may answer (one module each), and how faults are reported."""
