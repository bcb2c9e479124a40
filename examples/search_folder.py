"""Makes a folder of photos searchable and searches it: python examples/search_folder.py PHOTOS QUERY"""

import sys
from pathlib import Path

import superfeat

photos, query = map(Path, sys.argv[1:])
index = photos.with_name(f"{photos.name}-index")
superfeat.index_photos(photos, index)  # again later: adds what is new
for hit in superfeat.Engine.open(index).search(query, top=5):
    print(f"{hit.score:.4f}  {'' if hit.probability is None else f'{hit.probability:.0%}'}  {hit.name}")
