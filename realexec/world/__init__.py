"""What the driver knows of the real world, and how it carries out each action."""
