"""Instances that are pods of a Deployment, through the Kubernetes API."""
