"""BlitzScale's figures: set-ups, what each figure runs, and its rows beside the paper's."""
