"""What autoscalers would have decided on a production record, and what a simulated run of it gives."""
