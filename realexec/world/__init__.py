"""The driver's state of workers, requests and transfers, and how it carries out each action."""
