"""Browsing: the things of a collection as albums, and its folders."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query

from superfeat.duplicates import Group
from superfeat.service.albums import Found, album_id
from superfeat.service.answers import ERRORS, AlbumAnswer, AlbumPage, FolderList, PageQuery
from superfeat.service.problems import Problem, no_such_photo
from superfeat.service.routes_images import Id
from superfeat.service.state import Here, Service

routes = APIRouter(responses=ERRORS)
FIRST_PHOTOS = 4  # of an album, in a list of albums


@routes.get("/folders")
async def folders(service: Here) -> FolderList:
    """The folders of the photos' names."""
    found = await service.reading.run(service.catalogue.folders)
    return FolderList.model_validate({"folders": [{"folder": name, "images": count} for name, count in found]})


@routes.get("/albums")
async def page_of_albums(page: Annotated[PageQuery, Query()], service: Here) -> AlbumPage:
    """Groups of photos of the same thing, the largest first: those with a photo that fits what is asked for."""

    def choose() -> dict[str, Any]:
        found, chosen = service.albums.find(), service.catalogue.choose(page.wanted())
        wanted = set(chosen.ids.tolist())
        groups = [group for group in found.groups if sum(one.id in wanted for one in group.members)]
        some = groups[page.offset : page.offset + page.limit]
        return {
            **_state(found),
            "albums": len(groups),
            "grouped": sum(len(group.members) for group in groups),
            "unread": chosen.unread,
            "offset": page.offset,
            "found": [_facts(service, group, group.members[:FIRST_PHOTOS]) for group in some],
        }

    return AlbumPage.model_validate(await service.reading.run(choose))


@routes.get("/albums/{album}")
async def album(album: Id, service: Here) -> AlbumAnswer:
    """One of them, with all of its photos."""

    def choose() -> dict[str, Any]:
        found = service.albums.find()
        group = found.by_id(album)
        if group is None and not found.working:
            raise Problem(404, "no_such_album", f"there is no album {album}")
        return {**_state(found), "album": None if group is None else _facts(service, group, group.members)}

    return AlbumAnswer.model_validate(await service.reading.run(choose))


@routes.get("/images/{image}/album")
async def album_of(image: Id, service: Here) -> AlbumAnswer:
    """The album that a photo is in."""

    def choose() -> dict[str, Any]:
        if service.engine.index.snapshot().name_of(image) is None:
            raise no_such_photo(image)
        found = service.albums.find()
        group = found.of(image)
        return {**_state(found), "album": None if group is None else _facts(service, group, group.members)}

    return AlbumAnswer.model_validate(await service.reading.run(choose))


def _state(found: Found) -> dict[str, Any]:
    return {"working": found.working, "done": found.done, "of": found.images}


def _facts(service: Service, group: Group, some: Sequence[Any]) -> dict[str, Any]:
    """Without photos that were deleted since."""
    photos = service.facts_of(service.gallery.named_ids([one.id for one in some]))
    facts = {"id": album_id(group), "kind": group.kind, "likeness": group.likeness, "images": len(group.members)}
    return {**facts, "photos": photos}
