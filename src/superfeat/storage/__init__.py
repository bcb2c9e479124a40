"""Safe files: written whole or not at all; pickles of strangers read with care."""
