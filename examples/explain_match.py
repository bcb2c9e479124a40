"""Draws why the best other photo was found: python examples/explain_match.py INDEX QUERY PICTURE"""

import sys
from pathlib import Path

import superfeat
from superfeat.pages.explanation import draw_explanation, save_picture

index, query, picture = map(Path, sys.argv[1:])
engine = superfeat.Engine.open(index)
best = next(hit for hit in engine.search(query, top=2).hits if hit.path != str(query.resolve()))
why = engine.explain(query, best.name)
save_picture(draw_explanation(why, engine.pixels(query), engine.pixels(best.name)), picture)
print(f"{best.name} has score {why.score:.4f}, {sum(region.share for region in why.regions):.0%} of it in regions")
