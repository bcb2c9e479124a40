"""What was found: hits, answers and explanations, and how they are shown."""
