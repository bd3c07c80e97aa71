"""What a request costs in front of a vLLM engine: its way in, its tokens' way out, and CPU time."""
