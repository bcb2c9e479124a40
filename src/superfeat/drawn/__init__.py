"""Drawn landmarks that we own: buildings and monuments made of numbers, seen by many cameras in all weathers."""

from superfeat.drawn.drawing import draw, draw_folder

__all__ = ["draw", "draw_folder"]
