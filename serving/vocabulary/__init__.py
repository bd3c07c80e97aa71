"""What everybody speaks of: events, actions, requests, replicas, layers, units, errors."""
