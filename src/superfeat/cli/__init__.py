"""The command line. Data goes to stdout, progress and errors to stderr; heavy modules are imported by the verbs."""

import warnings

import click

import superfeat
from superfeat.cli.analyze import analyze
from superfeat.cli.artefacts import info, verify
from superfeat.cli.calibrate import calibrate
from superfeat.cli.compare import compare
from superfeat.cli.completion import completion
from superfeat.cli.demo import demo
from superfeat.cli.distil import distil
from superfeat.cli.doctor import doctor
from superfeat.cli.duplicates import duplicates
from superfeat.cli.evaluate import evaluate
from superfeat.cli.extract import extract
from superfeat.cli.index import codebook, compact, delete, index, merge
from superfeat.cli.label import label
from superfeat.cli.localize import localize_photos, make_map
from superfeat.cli.match_pairs import match_pairs
from superfeat.cli.pairs import pairs_from_labels
from superfeat.cli.reproduce import reproduce
from superfeat.cli.search import explain, search
from superfeat.cli.serve import serve
from superfeat.cli.shards import rebalance, shard
from superfeat.cli.terminal import VerbGroup
from superfeat.cli.train import draw, pretrain, train
from superfeat.cli.watch import watch
from superfeat.cli.weights import weights


@click.group(cls=VerbGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(superfeat.__version__, prog_name="superfeat")
@click.option("--debug", is_flag=True, help="Show a traceback with errors.")
def main(debug: bool) -> None:
    """Finds every photo of the same thing."""
    if not debug:
        warnings.simplefilter("ignore")  # decoders warn about odd photos; what matters is reported by name


VERBS = (
    index,
    search,
    explain,
    duplicates,
    match_pairs,
    make_map,
    localize_photos,
    serve,
    watch,
    demo,
    label,
    calibrate,
    extract,
    codebook,
    delete,
    compact,
    merge,
    shard,
    rebalance,
    train,
    pretrain,
    distil,
    draw,
    pairs_from_labels,
    evaluate,
    compare,
    analyze,
    reproduce,
    weights,
    info,
    verify,
    doctor,
    completion,
)
for command in VERBS:
    main.add_command(command)
