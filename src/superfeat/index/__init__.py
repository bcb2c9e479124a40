"""Words, codes, postings: an inverted file that lives on disk. Only this package looks inside."""
