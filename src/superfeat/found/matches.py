"""Why a photo was found, with both photos: a picture to look at and to save."""

import dataclasses
from html import escape
from pathlib import Path

from PIL import Image

from superfeat.explain.explain import AgreementFacts, Explanation, ExplanationFacts
from superfeat.found.document import embed, save_shown
from superfeat.found.explanation import PICTURE_FORMATS, Captions, draw_explanation, save_picture
from superfeat.found.photos import Looker, Named, PhotoLike
from superfeat.rerank.geometry import Arrangement

WIDE = 900  # pixels of the picture in a notebook


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ExplainedMatch(Explanation):
    """An explanation that knows its two photos: the one that was asked with, and the indexed one that was found."""

    photo: PhotoLike
    captions: Captions
    look: Looker
    arrangement: Arrangement | None = None  # where the shared words lie; None if nobody knows

    def __repr__(self) -> str:
        asked = f" for {self.captions.query!r}" if self.captions.query else ""
        regions = f"{len(self.regions)} region{'s' * (len(self.regions) != 1)}"
        words = f"{len(self.words.words)} shared word{'s' * (len(self.words.words) != 1)}"
        return f"<ExplainedMatch {self.captions.found!r}{asked}: score {self.score:.4f}, {words}, {regions}>"

    def _repr_html_(self) -> str:
        return f'<img alt="{escape(repr(self))}" src="{embed(self.draw(), WIDE)}" style="max-width:100%">'

    def as_dict(self) -> ExplanationFacts:
        """For JSON, with the names of both photos."""
        facts = super().as_dict()
        facts["query"], facts["found"] = self.captions.query, self.captions.found
        facts["agreement"] = None if self.arrangement is None else _agreement(self.arrangement)
        return facts

    def draw(self) -> Image.Image:
        """Both photos, their matched regions, and what each adds to the score."""
        pixels = self.look.pixels(self.photo), self.look.pixels(Named(self.captions.found))
        return draw_explanation(self, *pixels, captions=self.captions, arrangement=self.arrangement)

    def save(self, path: str | Path) -> None:
        """As a picture (.png, .jpg), a page (.html), or for programs (.json)."""
        if Path(path).suffix.lower() in PICTURE_FORMATS:
            save_picture(self.draw(), path)
        else:
            save_shown(path, f"superfeat: why {self.captions.found}", self._repr_html_, self.as_dict())


def _agreement(one: Arrangement) -> AgreementFacts:
    transform, outline = (
        None if rows is None else [list(row) for row in rows] for rows in (one.transform, one.outline)
    )
    return {"verified": one.verified, "inliers": one.inliers, "transform": transform, "outline": outline}
