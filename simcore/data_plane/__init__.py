"""Parameters and KV on links: loads, transfers, and who is where."""
