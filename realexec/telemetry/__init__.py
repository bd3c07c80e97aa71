"""What a run reports while it lasts: Prometheus metrics under vLLM's names, and a log of its decisions."""
