"""Table 3: FIRe against HOW with ASMK, and each as one pooled vector."""

from superfeat.studies.reproduce.outcome import Outcome, table
from superfeat.studies.reproduce.study import Study


def run(study: Study) -> Outcome:
    """Trains both with the same budget and scores them with ASMK and pooled."""
    trained = {"HOW": study.train(how=True), "FIRe": study.train()}
    rows = []
    for method, one in trained.items():
        for search in ("pooled", "asmk"):
            memory = study.evaluate(one, study.tests[-1], {"method": search}).card["memory"]["bytes_per_image"]
            rows.append([f"{method}, {search}", memory, *study.maps(one, {"method": search})])
    gain = study.gain(trained["HOW"], trained["FIRe"])
    columns = ["method", "bytes per image", *study.columns]
    finding = f"FIRe against HOW, both with ASMK: {gain}"
    return table("table-sota", columns, rows, study.columns, finding, gain.low > 0, beside=["bytes per image"])
