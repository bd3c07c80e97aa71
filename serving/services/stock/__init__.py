"""Stock engines, such as vLLM behind HTTP, which queue and batch by themselves."""
