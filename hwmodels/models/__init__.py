"""Shapes of models: layers, bytes, KV; read from config.json or the catalogue."""
