"""How many instances a model has."""
