"""Memory of worker processes, for their tensors and for each other's transports."""
