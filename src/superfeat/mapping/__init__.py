"""Pairs of photos for mapping programs, maps, and where a photo was taken in one."""
