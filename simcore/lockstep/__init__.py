"""Data-parallel groups: ranks whose steps begin together, because experts are shared among them."""
