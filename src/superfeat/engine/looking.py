"""How an engine looks at photos: by ONNX Runtime where it can, and else by torch. Features are the same to rounding."""

import functools
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

from superfeat.config import ExtractConfig
from superfeat.errors import SuperfeatError
from superfeat.extraction.decode import Decoded, read_for
from superfeat.features import Features
from superfeat.index.index import Index

if TYPE_CHECKING:
    from superfeat.extraction.without_torch import Onlooker
    from superfeat.weights import Network


class Sight:
    """The network that an index was made with, loaded when the first photo is looked at."""

    def __init__(self, index: Index, weights: str | None, device: str, workers: int | None) -> None:
        self._index, self._weights, self._device, self._workers = index, weights, device, workers

    @property
    def source(self) -> str | None:
        """Name or path of the network; None if nobody says."""
        return self._weights or self._index.facts.get("weights")

    @functools.cached_property
    def network(self) -> "Network":
        """The network in torch; a student of the index's network, or int8 of it, stands for it."""
        return self._loaded.standing_for(self._index.network)

    @functools.cached_property
    def _loaded(self) -> "Network":
        from superfeat.weights import load_network

        if self.source is None:
            raise SuperfeatError(
                f"{self._index.path} does not say which network it was made with; name it", arguments=["weights"]
            )
        return load_network(str(self.source))

    @functools.cached_property
    def onlooker(self) -> "Onlooker | None":
        """The network in ONNX Runtime, where it can be had without torch."""
        if self._device != "cpu" or self.source is None:
            return None
        from superfeat.extraction.kept import open_exported

        own = self._index.network if self._weights is None else None
        found = open_exported(str(self.source), own, self._index.facts.get("extract", {}).get("precision"))
        return None if found is None else found.standing_for(self._index.network)

    def look(self, data: bytes, config: ExtractConfig) -> Features:
        """Features of the photo with these bytes. ImageError if it is none."""
        if self.onlooker is not None:
            return self.onlooker.look(read_for(config, data), config, workers=self._workers)
        from superfeat.extraction.extract import extract_image

        chosen = self.settings(config)
        return extract_image(self.network, data, chosen, workers=self._workers, device=self._device)

    def look_at_pixels(self, pixels: UInt8[np.ndarray, "height width 3"], config: ExtractConfig) -> Features:
        """The same of pixels, as large as they are."""
        if self.onlooker is not None:
            return self.onlooker.look(Decoded(pixels, None), config, workers=self._workers)
        from superfeat.extraction.extract import extract_pixels

        chosen = self.settings(config)
        return extract_pixels(self.network, pixels, chosen, workers=self._workers, device=self._device)

    def settings(self, config: ExtractConfig) -> ExtractConfig:
        """Those that torch's network can look at photos with: in float32 where int8 cannot be had here."""
        from superfeat.extraction.precision import possible

        return possible(config, self.network, self._device)

    def keep(self) -> None:
        """Exports the network into the user's cache if torch had to be taken, so that it need not be again."""
        if "_loaded" in vars(self):
            from superfeat.extraction.kept import keep_export

            keep_export(self._loaded)
