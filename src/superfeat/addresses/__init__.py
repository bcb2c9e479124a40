"""Photos that are no files of their own, members of archives and objects of buckets, opened in one way."""
