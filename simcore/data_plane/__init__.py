"""Parameters and KV on links: loads, transfers, and the placement of replicas."""
