"""Table 3: FIRe against HOW with ASMK, each as one pooled vector, and the other systems as far as weights are there."""

import dataclasses
import math
from pathlib import Path
from typing import Any

from superfeat.evaluation.run import Evaluated
from superfeat.index.codebook import Codebook
from superfeat.settings import overlay
from superfeat.studies.reproduce.outcome import Outcome, published, table
from superfeat.studies.reproduce.study import Study, map_of
from superfeat.weights import Network, load_network

FOLDER = "published"  # in the work folder: where weights of other systems are looked for
# Rows of the paper that are trained elsewhere: the name of their weights, and what there is to say of the row.
OTHERS = {
    ("RMAC", "R101"): (
        "rmac-r101",
        "Gordo et al.'s weights (Caffe) were published; a cirtorch R-MAC file takes their place",
    ),
    ("AP-GeM", "R101"): ("apgem-r101", "dirtorch's Resnet101-AP-GeM file"),
    ("GeM+SOLAR", "R101"): ("solar-r101", "SOLAR's resnet101-solar-best file"),
    ("DELG", "R50"): ("delg-r50", "a DELG file (the paper's row is re-ranked by local features; ours is not)"),
    ("DELG", "R101"): ("delg-r101", "a DELG file (the paper's row is re-ranked by local features; ours is not)"),
    ("DELF", "R50-"): ("delf-r50", "the DELF checkpoint of TensorFlow (the paper's row is re-ranked)"),
    ("DELF-R-ASMK", "R50-"): (
        "delf-gld-r50",
        "the DELF-GLD checkpoint and detected boxes (the paper's row is re-ranked)",
    ),
}
MEASURED = {"HOW": "HOW, asmk", "FIRe": "FIRe, asmk"}


def run(study: Study) -> Outcome:
    """Trains HOW and FIRe with the same budget; scores them, and every other system whose weights are there."""
    trained = {"HOW": study.train(how=True), "FIRe": study.train()}
    rows = []
    for method, one in trained.items():
        for search in ("pooled", "asmk"):
            memory = study.evaluate(one, study.tests[-1], {"method": search}).card["memory"]["bytes_per_image"]
            rows.append([f"{method}, {search}", memory, *study.maps(one, {"method": search})])
    gain = study.gain(trained["HOW"], trained["FIRe"])
    columns = ["method", "bytes per image", *study.columns]
    finding = f"FIRe against HOW, both with ASMK: {gain}"
    drawn = table("table-sota", columns, rows, study.columns, finding, gain.low > 0, beside=["bytes per image"])
    return dataclasses.replace(drawn, columns=[*columns, "paper", "what is missing"], rows=_every_row(study, rows))


def _every_row(study: Study, rows: list[list[Any]]) -> list[list[Any]]:
    """Ours with the paper's number beside them, and a row for each other system."""
    paper = published("table-sota")
    theirs = {(row[1], row[2]): _quoted(paper["columns"], row) for row in paper["rows"]}
    known = {label: theirs[method, "R50-"] for method, label in MEASURED.items()}
    every = [[*row, known.get(row[0], "-"), "-"] for row in rows]
    for key, (name, about) in OTHERS.items():
        found = weights_of(study.work, name)
        label = f"{key[0]} {key[1]}"
        if found is None:
            nothing = ["-"] * (1 + len(study.columns))
            every.append([label, *nothing, theirs[key], f"{about}, as {FOLDER}/{name} in the work folder"])
        else:
            every.append([label, *_measured(study, load_network(found), name), theirs[key], "-"])
    return every


def _quoted(columns: list[str], row: list[Any]) -> str:
    """ROxford and RParis, Medium and Hard, as the paper prints them."""
    values = [row[columns.index(f"{name}_{grade}")] for name in ("roxford", "rparis") for grade in ("medium", "hard")]
    return "{}/{}, {}/{}".format(*values)


def weights_of(work: Path, name: str) -> Path | None:
    """The weights of this name in the work folder, whatever their ending."""
    found = sorted((work / FOLDER).glob(f"{name}*"))
    return found[0] if found else None


def _measured(study: Study, network: Network, name: str) -> list[float]:
    """Bytes per image and mAP of a network that was trained elsewhere."""
    kernel = {"index.kernel": "float32"} if network.one_vector else {}
    words = Codebook.of_vectors(network.dim, network.digest) if network.one_vector else None
    values: list[float] = []
    memory = math.nan
    for test in study.tests:
        output = study.work / FOLDER / "evaluations" / f"{name}-{test.name.replace(' ', '-')}"
        config = overlay(study.size.evaluation, kernel)
        done = study.protocol(network, test, output, config, words)
        assert isinstance(done, Evaluated)
        memory = done.card["memory"]["bytes_per_image"]
        values += [map_of(done.scores["grades"][grade]) for grade in study.grades(test)]
    return [memory, *values]
