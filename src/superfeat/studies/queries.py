"""What a network does with the photos that an evaluation asked with: the analyses for its report."""

from superfeat.config import ExtractConfig
from superfeat.evaluation.evaluate import Measured
from superfeat.sources.listing import list_photos
from superfeat.studies.analyse import analyse
from superfeat.studies.analysis import Analysing, Analysis
from superfeat.work import Work


def query_kinds(measured: Measured) -> list[str]:
    """The kinds of analysis that an evaluation allows: words where it has them, attention where there is LIT."""
    kinds = ["redundancy", "scales"]
    kinds += ["words"] if measured.config.method == "asmk" else []
    return kinds + (["attention", "correlation"] if measured.network.config.lit is not None else [])


def analyse_queries(
    kind: str, measured: Measured, photos: int, *, workers: int | None = None, device: str = "cpu"
) -> Work[Analysing, Analysis]:
    """One kind of analysis of the first so many `photos`, with the settings of the evaluation, and its words."""
    settings = measured.config.extract
    config = ExtractConfig(
        settings.features_per_image, max_side=settings.max_side, scales=settings.scales, upright=settings.upright
    )
    asked = list(dict.fromkeys(query.photo.path for query in measured.test.queries[:photos]))
    codebook = measured.run / "index" / "codebook" if kind == "words" else None
    listed = list_photos(asked).photos
    return analyse(kind, measured.network, listed, config=config, codebook=codebook, workers=workers, device=device)
