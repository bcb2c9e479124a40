"""What goes in and out as JSON and forms; the OpenAPI description is made from this."""

import datetime
from typing import Annotated, Any, Literal

from fastapi import UploadFile
from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from superfeat.index.places import Region, require_region
from superfeat.rerank.order import DEFAULT_RERANK, Rerank
from superfeat.service.catalogue import Wanted
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
DayText = Annotated[str, Field(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$", examples=["2019-05-04"])]
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
    rerank: Rerank = Field(DEFAULT_RERANK, description="How the first results are ordered; off: by score alone.")


class ExplainQuery(PhotoChoice):
    """A pair of photos."""

    found: ImageId = Field(description="The id of the photo that was found.")


class LabelForm(PhotoChoice):
    """An answer to a result."""

    found: ImageId = Field(description="The id of the photo that was found.")
    same: Literal["yes", "no", "forget"] = Field(description="Whether it shows the same thing; forget takes it back.")


class Choice(BaseModel):
    """Some of the photos."""

    model_config = ConfigDict(extra="forbid")

    folder: str | Nothing = Field(None, max_length=4096, description="Of this folder and of those in it.")
    since: DayText | Nothing = Field(None, description="Taken on this day or later, by their EXIF.")
    until: DayText | Nothing = Field(None, description="Taken on this day or before.")

    def wanted(self) -> Wanted:
        try:
            days = [None if text is None else datetime.date.fromisoformat(text) for text in (self.since, self.until)]
        except ValueError as error:
            raise Problem(422, "invalid", f"there is no such day: {error}") from error
        return Wanted(self.folder, *days)


class PageQuery(Choice):
    """A part of them, in the order in which they were added."""

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
    path: str | None = Field(None, description="Where its file lies; only of a service that was started with --files.")


class HitFacts(PhotoFacts):
    """A photo that was found."""

    score: float
    probability: float | None = Field(description="That it shows the same thing; null if the index is not calibrated.")
    region: tuple[float, float, float, float] | None = Field(description="Where in it: x, y, width, height.")
    verified: float | None = Field(description="Share of the score whose words lie as in the query; null: not known.")
    outline: list[tuple[float, float]] | None = Field(description="Where the corners of the query lie in it.")
    gone: bool = Field(description="Its file is no longer there.")
    copy_of: str | None = Field(description="The name of a hit above it that has the very same bytes.")
    said: bool | None = Field(description="What somebody said: whether it shows the same thing.")


class QueryFacts(BaseModel):
    """What was searched with."""

    query: str | None = Field(description="For later requests about the same upload.")
    image: int | None
    name: str | None
    size: tuple[int, int] | None = Field(description="Width and height at which it was looked at.")
    features: int = Field(description="That were searched with; 0 for an indexed photo, whose words are stored.")
    box: tuple[float, float, float, float] | None
    itself: PhotoFacts | None = Field(description="The indexed photo that the query is; it is no hit.")


class OrderFacts(BaseModel):
    """What a second look at the first results changed."""

    method: Rerank
    moved: int = Field(description="Results that have another place.")
    came: int = Field(description="Results that were not among them before.")
    used: int = Field(description="Photos that the new order rests on.")


class SearchAnswer(BaseModel):
    query: QueryFacts
    hits: list[HitFacts]
    reordered: OrderFacts | None = Field(description="null: the order is that of the scores.")
    unsearched: float = Field(description="Share of the collection that did not answer, and was not searched.")
    seconds: float


class DatedFacts(PhotoFacts):
    taken: datetime.date | None = Field(description="When, by its EXIF; only once photos of some days were asked for.")


class PhotoPage(BaseModel):
    images: int = Field(description="That fit what was asked for; all of the index if nothing was.")
    unread: int = Field(description="Photos whose day is not known yet: ask again in a moment.")
    offset: int
    photos: list[DatedFacts]


class FolderFacts(BaseModel):
    folder: str
    images: int = Field(description="In it and in the folders in it.")


class FolderList(BaseModel):
    folders: list[FolderFacts]


class AlbumFacts(BaseModel):
    """Photos that show the same thing."""

    id: int = Field(description="The lowest id of its photos.")
    kind: str = Field(description="copies (of one photo) or same thing")
    likeness: float = Field(description="The mean probability of its pairs; without a calibration, their similarity.")
    images: int
    photos: list[DatedFacts] = Field(description="In a list of albums, the first few.")


class AlbumState(BaseModel):
    """How far the search for albums is; it begins when they are asked for, and again when the index has changed."""

    working: bool
    done: int = Field(description="Photos that were compared with all others.")
    of: int


class AlbumPage(AlbumState):
    albums: int = Field(description="That fit what was asked for.")
    grouped: int = Field(description="Photos in them.")
    unread: int = Field(description="Photos whose day is not known yet: ask again in a moment.")
    offset: int
    found: list[AlbumFacts]


class AlbumAnswer(AlbumState):
    album: AlbumFacts | None = Field(description="null: the photo is in none, or none is known yet.")


class AddAnswer(PhotoFacts):
    outcome: str = Field(description="new, replaced or same")
    images: int


class DeleteAnswer(BaseModel):
    id: int
    name: str
    images: int


class LabelCounts(BaseModel):
    """What was said of results."""

    yes: int
    no: int


class LabelAnswer(LabelCounts):
    found: int
    same: bool | None


class FileAnswer(BaseModel):
    id: int
    name: str
    path: str


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
    query_name: str | None = Field(description="Of the photo that was asked with, if it is one of the index.")
    probability: float | None = Field(description="That both show the same thing; null if the index is not calibrated.")
    agreement: dict[str, Any] | None = Field(description="The share that lies as in the query, and the transform.")
    picture: str = Field(description="Where the same can be seen.")


class Info(BaseModel):
    version: str
    images: int
    words: int
    dim: int
    kernel: str
    calibrated: bool = Field(description="Whether answers have probabilities.")
    read_only: bool
    files: bool = Field(description="Whether files themselves can be had, and opened on the machine of the service.")
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


JPEG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}, "description": "A JPEG."}}


def photo_facts(image: int, name: str, path: str | None = None) -> dict[str, Any]:
    places = {"image": f"/images/{image}", "thumbnail": f"/images/{image}/thumbnail"}
    return {"id": image, "name": name, "path": path, **places}
