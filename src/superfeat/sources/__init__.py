"""Where photos come from: folders, patterns, lists; and what in them is no photo."""
