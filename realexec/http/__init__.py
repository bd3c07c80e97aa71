"""Stock engines behind HTTP: what each can do, their streams of tokens, what they tell of themselves."""
