"""The model card: what a network is, where it comes from, how to use it."""

from superfeat.methods import method_of
from superfeat.weights.facts import NetworkFacts


def model_card(facts: NetworkFacts, parameters: int, half: bool) -> str:
    """Markdown for a network's folder, from the same facts as its config.json."""
    network, provenance = facts["network"], facts["provenance"]
    trunk = network["trunk"]
    lines = [
        "# A superfeat network",
        "",
        f"- method: {method_of(network['method']).title}",
        f"- trunk: {trunk['arch']}, {trunk['stages']} of 4 stages"
        + (", stride in the first 1x1 of a stage" if trunk["stride_in_1x1"] else ""),
    ]
    if network["lit"]:
        lit = network["lit"]
        size = f"{lit['templates']} templates of {lit['dim']} dimensions"
        lines.append(f"- LIT: {size}, {lit['rounds']} rounds, {lit['update']} update")
    whitened = network["whitened_dim"]
    lines += [
        f"- features: {f'{whitened} dimensions, whitened' if whitened else 'raw: no whitening learned yet'}",
        f"- parameters: {parameters:,}, stored in {16 if half else 32} bits",
        f"- digest: {facts['digest']}",
        "",
        "## Where it comes from",
        "",
        *([f"- {key}: {value}" for key, value in provenance.items()] or ["- not recorded"]),
        "",
        "## Use",
        "",
        "    superfeat extract PHOTOS -o FEATURES --weights THIS_FOLDER",
        "",
    ]
    return "\n".join(lines)
