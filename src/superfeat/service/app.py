"""The application: an Engine in, an ASGI application out."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

import superfeat
from superfeat.engine import Engine
from superfeat.errors import StoreError
from superfeat.service import routes_albums, routes_files, routes_images, routes_labels, routes_search, routes_status
from superfeat.service.gate import Gate
from superfeat.service.limits import Limits
from superfeat.service.problems import explain_errors
from superfeat.service.routes_page import add_page
from superfeat.service.state import Service

logger = logging.getLogger("superfeat.service")
DESCRIPTION = "Finds every photo of the same thing. Errors are {error: {code, message}}."


def create_app(
    engine: Engine,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    *,
    token: str | None = None,
    read_only: bool = False,
    files: bool = False,
) -> FastAPI:
    """Serves an index. Without a token it answers this machine alone, whatever it is bound to.

    `files` lets clients have the files themselves, and open them on this machine: for a service on it alone.
    """
    service = Service(engine, limits, token=token, read_only=read_only, files=files)
    app = FastAPI(
        title="superfeat",
        version=superfeat.__version__,
        description=DESCRIPTION,
        lifespan=_life,
        docs_url=None,
        redoc_url=None,  # their pages load scripts from elsewhere
    )
    app.state.service = service
    explain_errors(app)
    for module in (routes_search, routes_images, routes_files, routes_labels, routes_albums, routes_status):
        app.include_router(module.routes)
    add_page(app)
    app.add_middleware(Gate, limits=limits, token=token, metrics=service.metrics)
    if token is not None:
        _describe_token(app)
    return app


@contextlib.asynccontextmanager
async def _life(app: FastAPI) -> AsyncIterator[None]:
    """From the first request to the last."""
    service: Service = app.state.service
    if not service.read_only:
        try:
            service.uploads.sweep()
        except StoreError as error:  # another process writes; what it leaves is swept next time
            logger.warning("%s", error)
    watching = asyncio.create_task(service.watch.run())
    try:
        yield
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        await asyncio.to_thread(service.close)


def _describe_token(app: FastAPI) -> None:
    """Says in the description that requests need the token."""

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{"token": []}]
            schema["paths"]["/health"]["get"]["security"] = []
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]
