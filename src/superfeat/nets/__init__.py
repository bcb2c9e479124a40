"""Networks: a trunk, LIT, whitening, and the methods composed of them. Pure modules: no files, no settings objects."""
