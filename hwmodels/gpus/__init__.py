"""GPUs: datasheet numbers and power."""
