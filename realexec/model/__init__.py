"""The model runner: layers, KV and parameters of a model on one worker."""
