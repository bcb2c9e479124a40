"""Figure: the correlation between attention maps, trained with and without the decorrelation loss."""

from superfeat.studies.analyses import correlation_matrix, off_diagonal_mean
from superfeat.studies.reproduce.outcome import Outcome
from superfeat.studies.reproduce.study import Study


def run(study: Study) -> Outcome:
    """Trains both and averages over the queries."""
    matrices, rows = [], list[tuple[str, float]]()
    for kind, weight in (("with", study.size.recipe.losses.decorrelation), ("without", 0.0)):
        network = study.train({"losses.decorrelation": weight}).network
        study.on_progress(f"correlation {kind} decorrelation", 0, 1)
        matrix = correlation_matrix(network, study.queries, study.size.evaluation.extract, run=study.run)
        matrices.append((f"{kind} decorrelation", matrix))
        rows.append((kind, off_diagonal_mean(matrix)))
    finding = f"mean correlation of two maps {rows[0][1]:.3f} with the loss, {rows[1][1]:.3f} without"
    agrees = rows[0][1] < 0.7 * rows[1][1]
    return Outcome(["decorrelation loss", "mean correlation"], rows, finding, agrees, matrices=matrices)
