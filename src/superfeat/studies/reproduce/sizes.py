"""The two sizes of a study: the paper's own, for a machine with a GPU, and one of minutes on two cores."""

import dataclasses

from superfeat.config import EvaluateConfig, Recipe
from superfeat.errors import SuperfeatError
from superfeat.recipes import read_recipe
from superfeat.settings import Changes, nearest_name, overlay

SIZES = ("mini", "paper")


@dataclasses.dataclass(frozen=True)
class Size:
    """What is trained, on what it is tested, and which values an ablation takes."""

    name: str
    recipe: Recipe
    how: Changes  # what makes the recipe one of HOW
    evaluation: EvaluateConfig
    tests: tuple[str, ...]  # names of benchmarks; none: things of the training photos that are held out
    templates: tuple[int, ...]
    rounds: tuple[int, ...]
    negatives: tuple[int, ...]
    feature_counts: tuple[int, ...]  # features kept per image
    single_counts: tuple[int, ...]  # at scale 1 alone
    neighbours: tuple[int, ...]  # K of the redundancy
    match_ratio: Changes  # what figure-match-ratio changes, so that there is something to see
    epochs_shown: str  # what an epoch is, in words


HOW_SETTINGS = {
    "network": {"method": "how", "lit": None},
    "losses": {"superfeature": 0.0, "decorrelation": 0.0, "pooled": 1.0},
    "training": {"flip": 0.0},
    "pretraining": {"first": False},
}
MINI = {
    "data": {"things": 96, "views": 6, "side": 128},
    "network.lit": {"templates": 32, "rounds": 3, "dim": 128},
    "pretraining": {"epochs": 10, "step_epochs": 5, "side": 96},
    "training": {"epochs": 4, "queries": 60, "max_side": 128, "whitening_images": 150, "learning_rate": 1e-4},
    "validation": {"every": 0},
}
MINI_EVALUATION = {
    "extract": {"max_side": 128, "scales": (1.414, 1.0, 0.707), "features_per_image": 64},
    "codebook": {"words": 512, "rounds": 5},
    "codebook_images": 300,
}
# A network this small tells positives from hard negatives no better than by chance, so it is shown easy ones; and
# templates of deviation 1 would make features of one ID so alike that the rule has nothing to do.
MINI_MATCH_RATIO = {"training.template_scale": 0.2, "training.pool": 8}


def read_size(name: str) -> Size:
    """One of SIZES."""
    if name == "paper":
        recipe = overlay(read_recipe("fire-sfm120k"), {"validation": {"every": 0}})
        return Size(
            name,
            recipe,
            {**HOW_SETTINGS, "training": {"flip": 0.0, "epochs": 20, "learning_rate": 1e-6}},
            overlay(EvaluateConfig(), {"extract.upright": False}),
            ("sfm120k-val", "roxford5k", "rparis6k"),
            templates=(64, 128, 256, 512, 1024),
            rounds=(1, 2, 3, 4, 6, 9, 12),
            negatives=(1, 2, 3, 4, 5, 7, 10, 15),
            feature_counts=(200, 400, 600, 800, 1000, 1200, 1400, 1600, 2000),
            single_counts=(25, 50, 100, 150, 200, 250, 300),
            neighbours=(1, 2, 4, 8, 16, 32, 64, 128, 256),
            match_ratio={},
            epochs_shown="2000 tuples",
        )
    if name != "mini":
        raise SuperfeatError(f"there is no size '{name}'; {nearest_name(name, SIZES)}")
    recipe = overlay(read_recipe("drawn-mini"), MINI)
    return Size(
        name,
        recipe,
        HOW_SETTINGS,
        overlay(EvaluateConfig(), MINI_EVALUATION),
        (),
        templates=(8, 16, 32, 64),
        rounds=(1, 2, 3, 6),
        negatives=(1, 3, 5, 8),
        feature_counts=(16, 32, 48, 64, 96),
        single_counts=(8, 16, 24, 32),
        neighbours=(1, 2, 4, 8, 16, 31),
        match_ratio=MINI_MATCH_RATIO,
        epochs_shown="60 tuples",
    )
