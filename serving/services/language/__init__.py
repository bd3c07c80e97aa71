"""Language models in stages, whose replicas hold the KV of their layers."""
