"""Whether two photos show the same surface: local features of both that agree on one transform."""
