"""Our own study: what elastic systems do on more GPUs and with more models. No paper has these numbers."""
