"""Colours of pictures and plots."""

INK, MUTED = "#24292f", "#57606b"
# The Okabe-Ito colours, which differ for every kind of sight; yellow is too faint on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
