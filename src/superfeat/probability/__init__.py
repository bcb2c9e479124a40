"""How likely a match is right: the model, its use in an index, and its fit to labels."""
