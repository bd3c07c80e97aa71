"""Autoscalers beside observed replica counts, published claims and live scaling."""
