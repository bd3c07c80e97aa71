"""What this machine's workers take: steps, transfers and starts, measured on real worker processes."""
