"""Training and test sets: one file per family."""
