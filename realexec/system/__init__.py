"""What the operating system does for workers: signals, the parent's end, devices, packages."""
