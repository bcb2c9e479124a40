"""What the service is and how it does: /info, /health, /metrics."""

from fastapi import APIRouter, Response

import superfeat
from superfeat.service.answers import ERRORS, Health, Info
from superfeat.service.metrics import CONTENT_TYPE
from superfeat.service.state import Here, Service

routes = APIRouter(responses=ERRORS)


@routes.get("/info")
async def info(service: Here) -> Info:
    """What is served, and what may be sent."""
    return await service.reading.run(lambda: _describe(service))


def _describe(service: Service) -> Info:
    """Without anything that tells where it lies on the disk."""
    layout = service.engine.index.snapshot().layout
    return Info(
        version=superfeat.__version__,
        images=len(service.engine.index),
        words=layout.words,
        dim=layout.dim,
        kernel=layout.vectors or ("binary" if layout.binary else "real"),
        calibrated=service.engine.calibration is not None,
        read_only=service.read_only,
        files=service.files,
        max_upload=service.limits.max_upload,
        max_pixels=service.limits.max_pixels,
        token=service.token is not None,
    )


@routes.get("/health")
async def health() -> Health:
    """Answers as long as the service can."""
    return Health(status="ok")


@routes.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(service: Here) -> Response:
    """For Prometheus."""
    return Response(await service.reading.run(service.metrics.text), media_type=CONTENT_TYPE)
