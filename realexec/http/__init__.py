"""Stock engines behind HTTP: what each can do, their token streams, and what they report of themselves."""
