"""Draws why the best other photo was found: python examples/explain_match.py INDEX QUERY PICTURE"""

import sys

import superfeat

index, query, picture = sys.argv[1:]
engine = superfeat.Engine.open(index)
best = engine.search(query, top=1)[0]
why = engine.explain(query, best)
why.save(picture)
print(f"{best.name} has score {why.score:.4f}, {sum(region.share for region in why.regions):.0%} of it in regions")
