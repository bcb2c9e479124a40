"""Figure: from which scales the selected features come, HOW against FIRe."""

from superfeat.figures import Panel, Series
from superfeat.studies.analyses import every_feature, scale_shares
from superfeat.studies.reproduce.outcome import Outcome, published
from superfeat.studies.reproduce.study import Study

SCALE_MEASURES = ("of_selected", "selected", "features")


def run(study: Study) -> Outcome:
    """Counts over the queries."""
    config = study.size.evaluation.extract
    shares = {}
    for method, trained in (("HOW", study.train(how=True)), ("FIRe", study.train())):
        study.on_progress(f"scales of {method}", 0, 1)
        features = study.extract(trained.network, every_feature(config))
        shares[method] = scale_shares(features, config.scales, config.features_per_image)
    rows = [
        [method, scale, *(float(getattr(found, measure)[number]) for measure in SCALE_MEASURES)]
        for method, found in shares.items()
        for number, scale in enumerate(config.scales)
    ]
    panels = []
    labels = [f"{scale:g}" for scale in config.scales]
    for measure, paper in zip(SCALE_MEASURES, published("figure-scales")["panel"], strict=True):
        ours = [Series(method, labels, getattr(found, measure).tolist()) for method, found in shares.items()]
        theirs = [
            Series(f"{one['name']} (paper)", [f"{x:g}" for x in one["x"]], one["y"], paper=True)
            for one in paper["series"]
        ]
        panels += [
            Panel(f"{paper['name']}: ours", "scale", paper["name"], ours),
            Panel(f"{paper['name']}: the paper's", "scale", paper["name"], theirs),
        ]
    used = {method: found.of_selected for method, found in shares.items()}
    spread = {method: float(share.max() / max(share.min(), 1e-9)) for method, share in used.items()}
    ratios = ", ".join(f"{method} {value:.1f} times" for method, value in spread.items())
    finding = f"the most used scale against the least used: {ratios}"
    return Outcome(
        ["method", "scale", *SCALE_MEASURES],
        rows,
        finding,
        agrees=spread["FIRe"] < spread["HOW"],
        panels=panels,
        bars=True,
    )
