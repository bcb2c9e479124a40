"""What a probability is in words, which results belong together, and how names are shown: the same on every page."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from superfeat.found.hits import FoundPhoto

# From which probability on which words; the web page says the same (service/page/cards.js).
VERDICTS = (
    (0.95, "very likely the same", "yes"),
    (0.75, "likely the same", "yes"),
    (0.4, "perhaps the same", "maybe"),
    (0.1, "unlikely to be the same", "no"),
    (0.0, "very unlikely to be the same", "no"),
)
# Sections of results, by the least probability in them; those of the last are folded away.
SECTIONS = (
    (0.75, "The same thing"),
    (0.4, "Perhaps the same thing"),
    (0.1, "Less alike"),
    (0.0, "Very unlikely to be the same"),
)
MOST_ALIKE = 4  # results that are shown where all are very unlikely
UNJUDGED = 12  # results that are shown where there are no probabilities
FEWEST_PARTS = 2  # of a name that are shown: where each thing has a folder, neither it nor the file says much alone


class Section(NamedTuple):
    """Results that one heading stands over."""

    title: str
    hits: tuple[FoundPhoto, ...]
    folded: bool


def verdict(probability: float) -> tuple[str, str]:
    """A probability for people, and the class of its colour."""
    words, kind = next((words, kind) for least, words, kind in VERDICTS if probability >= least)
    return f"{words}, {percent(probability)}", kind


def percent(share: float) -> str:
    """Never 100 % or 0 % of what is not certain."""
    rounded = round(100 * share)
    if rounded >= 100 and share < 1:
        return "over 99 %"
    return "under 1 %" if rounded <= 0 and share > 0 else f"{rounded} %"


def sort_hits(hits: Iterable[FoundPhoto]) -> list[Section]:
    """Results, best first, in sections that say what the verdict on each of them says."""
    found = [hit for hit in hits if hit.score > 0]
    chances = [hit.probability for hit in found]
    if None in chances:
        parts = [("Most alike first", found[:UNJUDGED], False), ("Less alike", found[UNJUDGED:], True)]
    else:
        places = [_section_of(chance or 0.0) for chance in chances]
        parts = [
            (title, [hit for hit, at in zip(found, places, strict=True) if at == place], place == len(SECTIONS) - 1)
            for place, (_, title) in enumerate(SECTIONS)
        ]
        if found and min(places) == len(SECTIONS) - 1:
            parts = [("Most alike", found[:MOST_ALIKE], False), (SECTIONS[-1][1], found[MOST_ALIKE:], True)]
    return [Section(title, tuple(some), folded) for title, some, folded in parts if some]


def _section_of(probability: float) -> int:
    return next(place for place, (least, _) in enumerate(SECTIONS) if probability >= least)


def headline(hits: Iterable[FoundPhoto]) -> str:
    """What was found, in a sentence that the sections bear out."""
    found = [hit for hit in hits if hit.score > 0]
    if not found:
        return "Nothing alike was found"
    if found[0].probability is None:
        return f"{_photos(len(found))}, most alike first"
    counts = Counter(_section_of(hit.probability or 0.0) for hit in found)
    if counts[0]:
        return f"{_photos(counts[0])} of the same thing" + (f", {counts[1]} more perhaps" if counts[1] else "")
    if counts[1]:
        return f"{_photos(counts[1])} that may show the same thing"
    return "No photo of the same thing was found"


def _photos(count: int) -> str:
    return "1 photo" if count == 1 else f"{count:,} photos"


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Each name by as much of its end as tells it from the others, its folder at least."""
    parts = {name: name.split("/") for name in names}
    shown: dict[str, str] = {}
    length = FEWEST_PARTS
    while len(shown) < len(parts):
        ends = {name: "/".join(some[-length:]) for name, some in parts.items() if name not in shown}
        counts = Counter("/".join(some[-length:]) for some in parts.values())
        shown |= {name: end for name, end in ends.items() if counts[end] == 1 or len(parts[name]) <= length}
        length += 1
    return shown
