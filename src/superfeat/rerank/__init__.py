"""A second look at the first results: which part of a score agrees on one transform, and the order that follows."""
