"""The parts of training; the loop itself is superfeat.training.train."""
