"""The shared types of all packages: events, actions, requests, replicas, layers, units, errors."""
