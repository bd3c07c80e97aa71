"""Memory that worker processes give to tensors and to each other's transports."""
