"""What goes in and out as JSON and forms; the OpenAPI description is made from this."""

from typing import Annotated, Any

from fastapi import UploadFile
from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from superfeat.index.places import Region, require_region
from superfeat.service.limits import MOST_HITS, MOST_LISTED
from superfeat.service.problems import Problem

LARGEST_ID = 2**63 - 1
NUMBER = r"\s*[0-9.eE+-]{1,24}\s*"
BoxText = Annotated[
    str,
    Field(
        pattern=f"^{NUMBER}(,{NUMBER}){{3}}$",
        description="x,y,width,height as fractions of the upright photo.",
        examples=["0.25,0.1,0.5,0.6"],
    ),
]
ImageId = Annotated[int, Field(ge=0, le=LARGEST_ID)]
QueryId = Annotated[str, Field(pattern="^[0-9a-f]{32}$", description="Of an uploaded photo, from an earlier answer.")]
Nothing = SkipJsonSchema[None]  # a field that may be left out; in a form there is no null


class PhotoChoice(BaseModel):
    """Which photo to search with: exactly one of image, name, query (and photo where one can be sent)."""

    model_config = ConfigDict(extra="forbid")

    image: ImageId | Nothing = Field(None, description="The id of an indexed photo.")
    name: str | Nothing = Field(None, max_length=4096, description="The name of an indexed photo.")
    query: QueryId | Nothing = None
    box: BoxText | Nothing = None

    def region(self) -> Region | None:
        """The box, checked."""
        if self.box is None:
            return None
        try:
            return require_region([float(part) for part in self.box.split(",")])
        except ValueError as error:
            raise Problem(422, "invalid", f"box: {error}") from error


class SearchForm(PhotoChoice):
    """A search."""

    photo: UploadFile | Nothing = Field(None, description="A photo to search with.")
    top: int = Field(20, ge=1, le=MOST_HITS, description="How many photos to find.")


class ExplainQuery(PhotoChoice):
    """A pair of photos."""

    found: ImageId = Field(description="The id of the photo that was found.")


class PageQuery(BaseModel):
    """A part of all photos, in the order in which they were added."""

    model_config = ConfigDict(extra="forbid")

    offset: int = Field(0, ge=0, le=LARGEST_ID)
    limit: int = Field(24, ge=1, le=MOST_LISTED)


class AddForm(BaseModel):
    """A photo to add."""

    model_config = ConfigDict(extra="forbid")

    photo: UploadFile
    name: str | Nothing = Field(None, max_length=4096, description="[default: the name of the file]")
    replace: bool = Field(False, description="Take the place of a photo with this name.")


class PhotoFacts(BaseModel):
    """An indexed photo."""

    id: int
    name: str
    image: str = Field(description="Where it can be seen.")
    thumbnail: str


class HitFacts(PhotoFacts):
    """A photo that was found."""

    score: float
    probability: float | None = Field(description="That it shows the same thing; null if the index is not calibrated.")
    region: tuple[float, float, float, float] | None = Field(description="Where in it: x, y, width, height.")


class QueryFacts(BaseModel):
    """What was searched with."""

    query: str | None = Field(description="For later requests about the same upload.")
    image: int | None
    name: str | None
    size: tuple[int, int] | None = Field(description="Width and height at which it was looked at.")
    features: int = Field(description="That were searched with; 0 for an indexed photo, whose words are stored.")
    box: tuple[float, float, float, float] | None


class SearchAnswer(BaseModel):
    query: QueryFacts
    hits: list[HitFacts]
    seconds: float


class PhotoPage(BaseModel):
    images: int = Field(description="In the whole index.")
    offset: int
    photos: list[PhotoFacts]


class AddAnswer(PhotoFacts):
    outcome: str = Field(description="new, replaced or same")
    images: int


class DeleteAnswer(BaseModel):
    id: int
    name: str
    images: int


class PlaceFacts(BaseModel):
    centroid: tuple[float, float]
    box: tuple[float, float, float, float]


class RegionFacts(BaseModel):
    share: float = Field(description="Of the score.")
    query: PlaceFacts
    found: PlaceFacts


class ExplainAnswer(BaseModel):
    """Where a score comes from: `regions` and `rest` add up to 1."""

    found: PhotoFacts
    score: float
    shared_words: int
    regions: list[RegionFacts]
    rest: float
    words: list[dict[str, Any]]
    pairs: list[dict[str, Any]]
    picture: str = Field(description="Where the same can be seen.")


class Info(BaseModel):
    version: str
    images: int
    words: int
    dim: int
    kernel: str
    calibrated: bool = Field(description="Whether answers have probabilities.")
    read_only: bool
    max_upload: int
    max_pixels: int
    token: bool = Field(description="Whether requests need a token.")


class Health(BaseModel):
    status: str


class ErrorFacts(BaseModel):
    code: str = Field(description="For programs.")
    message: str = Field(description="For people.")


class ErrorAnswer(BaseModel):
    """Every error."""

    error: ErrorFacts


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorAnswer, "description": "What was wrong with the request."},
    "5XX": {"model": ErrorAnswer, "description": "Too much at once (503), or a fault of the service."},
}


def photo_facts(image: int, name: str) -> dict[str, Any]:
    return {"id": image, "name": name, "image": f"/images/{image}", "thumbnail": f"/images/{image}/thumbnail"}
