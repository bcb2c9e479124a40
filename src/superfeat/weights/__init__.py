"""Weights: our own format, the released checkpoints, trunk files of other libraries, and named weights to fetch."""

from superfeat.weights.files import carried_codebook, find_weights, load_network, save_network
from superfeat.weights.network import Network, build_module

__all__ = ["Network", "build_module", "carried_codebook", "find_weights", "load_network", "save_network"]
