"""Table 2, ablation on losses: global, decorrelation and super-feature loss."""

from superfeat.studies.reproduce.outcome import Outcome, table
from superfeat.studies.reproduce.study import Study

LOSSES = ("global_loss", "attention_loss", "super_loss")
COMBINATIONS = (
    (True, False, False),
    (True, True, False),
    (True, True, True),
    (False, False, True),
    (False, True, True),
)


def run(study: Study) -> Outcome:
    """Trains with each combination."""
    weights = study.size.recipe.losses
    trained = []
    for pooled, attention, superfeature in COMBINATIONS:
        losses = {
            "pooled": 1.0 if pooled else 0.0,
            "decorrelation": weights.decorrelation if attention else 0.0,
            "superfeature": weights.superfeature if superfeature else 0.0,
        }
        trained.append(study.train({"losses": losses}))
    rows = [[*combination, *study.maps(one)] for combination, one in zip(COMBINATIONS, trained, strict=True)]
    gain = study.gain(trained[3], trained[4])
    finding = f"decorrelation on top of the super-feature loss: {gain}"
    return table("table-2", [*LOSSES, *study.columns], rows, study.columns, finding, agrees=gain.low > 0)
