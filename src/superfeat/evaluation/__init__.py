"""The parts of a protocol run: its folder, its stages, its scores, its card, and how two are compared."""
