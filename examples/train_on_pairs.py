"""Finds pairs of photos that show the same view and trains on them: python examples/train_on_pairs.py THINGS RUN

THINGS has one sub-folder per thing, seven or more. It begins with the network that comes with superfeat and takes about
a minute; settings after RUN, such as training.epochs=10 training.max_side=352, make it a real training.
"""

import sys
from pathlib import Path

from superfeat.datasets.folders import read_folders
from superfeat.geometry.pairs import pairs_from_labels, write_pairs
from superfeat.recipes import read_recipe
from superfeat.training.train import train

things, run, *settings = sys.argv[1:]
photos = read_folders(Path(things))
pairs = [pair for thing in pairs_from_labels(photos) for pair in thing.pairs]
pairs_file = Path(f"{run}-pairs.csv")
write_pairs(pairs_file, photos.photos, pairs)
print(f"{len(pairs)} pairs, the best with {max(pair.inliers for pair in pairs)} matches that agree")

short = ["pretraining.first=false", "training.epochs=1", "training.queries=10", "training.max_side=224"]
recipe = read_recipe("fire-folder", [*short, *settings], weights="fire-landmarks-3")
for event in train(recipe, read_folders(Path(things), pairs_file), run):
    if event.stage == "step":
        print(f"step {event.done} of {event.total}: loss {event.facts['loss']:.4f}")
print(f"use it: superfeat index PHOTOS -o INDEX --weights {run}/last")
