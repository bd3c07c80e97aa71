"""What goes wrong in the simulated world, and when."""
