"""Settings: frozen dataclasses, one per stage. Their defaults are the paper's; anything unknown stops the program."""

import dataclasses
from typing import Literal

from superfeat.distil_settings import DistilConfig as DistilConfig
from superfeat.errors import ConfigError
from superfeat.method_settings import (
    ATTENTION_METHODS as ATTENTION_METHODS,
)
from superfeat.method_settings import (
    METHOD_NAMES as METHOD_NAMES,
)
from superfeat.method_settings import (
    VECTOR_KERNELS as VECTOR_KERNELS,
)
from superfeat.method_settings import (
    VECTOR_METHODS as VECTOR_METHODS,
)
from superfeat.method_settings import (
    AttentionConfig as AttentionConfig,
)
from superfeat.method_settings import (
    ExpansionConfig as ExpansionConfig,
)
from superfeat.method_settings import (
    PoolingConfig as PoolingConfig,
)
from superfeat.pretrain_settings import PretrainConfig as PretrainConfig
from superfeat.settings import OPTIONAL, nearest_name, require

DEFAULT_WEIGHTS = "fire-landmarks-3"  # what is used where nobody says
DEFAULT_PROFILE = "fast"
INT8_PROFILES = ("fast", "quick", "large")  # whose products may be in int8 where nobody says; the paper's are float32
OWN_CODEBOOK = "own"  # one learned from what is indexed
CALIBRATION = "calibration.json"  # in an index or a network's folder: from scores to probabilities
CARRIED_CODEBOOK = "codebook"  # in a network's folder
DEFAULT_QUIET = 2.0  # seconds in which no file of a watched folder may change before all are indexed
WHITENED_DIM = 128
WHITENING_IMAGES = 5000
POINTS_PER_SIDE = 6.0  # points of a map, times the root of its places


@dataclasses.dataclass(frozen=True)
class TrunkConfig:
    """Which convolutional trunk, and what it expects of its pixels."""

    arch: Literal["resnet10", "resnet18", "resnet34", "resnet50", "resnet101", "efficientnet-lite0"] = "resnet50"
    stages: int = 3  # 3 of 4: the paper's trunk is cut before its last block
    stride_in_1x1: bool = False  # the older variant of Caffe and Keras weights
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    # TensorFlow's ResNets; None: torchvision's
    layout: Literal["slim", "keras", "keras-half"] | None = dataclasses.field(default=None, metadata=OPTIONAL)
    neck: int | None = dataclasses.field(default=None, metadata=OPTIONAL)  # of an EfficientNet: channels it ends in

    def __post_init__(self) -> None:
        require(1 <= self.stages <= 4, "trunk.stages", self.stages, "1 to 4")
        good = self.neck is None or (self.arch.startswith("efficientnet") and self.neck >= 1)
        require(good, "trunk.neck", self.neck, "of an EfficientNet, 1 or more")
        require(len(self.mean) == 3, "trunk.mean", self.mean, "three numbers")
        require(len(self.std) == 3 and min(self.std) > 0, "trunk.std", self.std, "three numbers above 0")


@dataclasses.dataclass(frozen=True)
class LitConfig:
    """The Local feature Integration Transformer (Section 3.1; Appendix for the variants)."""

    templates: int = 256  # N
    rounds: int = 6  # T
    dim: int = 1024  # d
    update: Literal["residual", "gru"] = "residual"
    frozen_templates: bool = False

    def __post_init__(self) -> None:
        for name in ("templates", "rounds", "dim"):
            require(getattr(self, name) >= 1, f"lit.{name}", getattr(self, name), "1 or more")
        require(self.dim >= 2, "lit.dim", self.dim, "2 or more")


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """A whole network. `whitened_dim = None` means that no whitening has been learned yet."""

    method: str = "fire"  # a name of superfeat.methods
    trunk: TrunkConfig = TrunkConfig()
    lit: LitConfig | None = LitConfig()
    whitened_dim: int | None = WHITENED_DIM
    # Of the methods with one vector per photo
    pooling: PoolingConfig | None = dataclasses.field(default=None, metadata=OPTIONAL)
    # Of local features that attention selects: DELF's, DELG's
    attention: AttentionConfig | None = dataclasses.field(default=None, metadata=OPTIONAL)
    # Of FIRe: the strongest places of the map as features too, so many times the root of their number
    points: float | None = dataclasses.field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        for part, methods in (("pooling", VECTOR_METHODS), ("attention", ATTENTION_METHODS)):
            if (self.method in methods) != (getattr(self, part) is not None):
                needs = "needs" if self.method in methods else "takes no"
                raise ConfigError(f"method '{self.method}' {needs} [{part}] settings")
        if (self.method == "fire") != (self.lit is not None):
            raise ConfigError(
                f"method '{self.method}' {'needs' if self.method == 'fire' else 'takes no'} [lit] settings"
            )
        if self.points is not None:
            good = self.points > 0 and self.lit is not None and self.whitened_dim is not None
            require(good, "points", self.points, "above 0, and only where super-features are whitened")
        if self.whitened_dim is not None:
            require(self.whitened_dim >= 1, "whitened_dim", self.whitened_dim, "1 or more")


@dataclasses.dataclass(frozen=True)
class ExtractConfig:
    """From a photo to its features. Everything that changes the result is here, and nothing that does not."""

    features_per_image: int = 1000
    features_per_scale: int | None = None  # the strongest so many of each scale; None: strongest over all scales alone
    max_side: int = 1024  # longest side in pixels; photos are never enlarged to it
    scales: tuple[float, ...] = (2.0, 1.414, 1.0, 0.707, 0.5, 0.353, 0.25)
    upright: bool = True  # turn by the EXIF tag; benchmarks read images as stored
    draft: bool = False  # let the JPEG decoder shrink large photos: faster, a little different
    attention: Literal["none", "regions", "maps"] = "none"
    # Features weaker than this are dropped (DELF's threshold)
    least_strength: float | None = dataclasses.field(default=None, metadata=OPTIONAL)
    # How photos are shrunk to max_side, if not by Lanczos (DELG's)
    resampling: Literal["bilinear"] | None = dataclasses.field(default=None, metadata=OPTIONAL)
    # Of the trunk's products; None is float32. A new index takes int8 by itself where that pays (docs/onnx.md)
    precision: Literal["float32", "int8"] | None = dataclasses.field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        if self.precision == "float32":
            object.__setattr__(self, "precision", None)  # one way to say it: settings are compared
        require(self.features_per_image >= 1, "extract.features_per_image", self.features_per_image, "1 or more")
        each = self.features_per_scale
        require(each is None or each >= 1, "extract.features_per_scale", each, "1 or more")
        require(self.max_side >= 16, "extract.max_side", self.max_side, "16 or more")
        good = len(self.scales) > 0 and all(0 < scale <= 8 for scale in self.scales)
        require(good, "extract.scales", self.scales, "one or more numbers above 0 and up to 8")
        require(len(set(self.scales)) == len(self.scales), "extract.scales", self.scales, "each scale once")

    @classmethod
    def profile(cls, name: str) -> "ExtractConfig":
        """A named set of settings: `paper`, or `fast` for a laptop (docs/profiles.md shows what it costs)."""
        if name not in PROFILES:
            raise ConfigError(f"unknown profile '{name}'; {nearest_name(name, PROFILES)}")
        return PROFILES[name]


@dataclasses.dataclass(frozen=True)
class CodebookConfig:
    """k-means (METHOD of the paper: 65536 words, 10 rounds, at most 256 points per word)."""

    words: int = 65536
    rounds: int = 10
    points_per_word: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("words", "rounds", "points_per_word"):
            require(getattr(self, name) >= 1, f"codebook.{name}", getattr(self, name), "1 or more")
        require(self.seed >= 0, "codebook.seed", self.seed, "0 or more")


@dataclasses.dataclass(frozen=True)
class SearchConfig:
    """How a query is compared: what may vary from search to search on the same index."""

    assignments: int = 5  # words per query feature; an image in the index has one
    alpha: float = 3.0  # selectivity: u^alpha
    threshold: float = 0.0  # where u reaches it
    idf: bool = False
    # Of queries that are one vector
    expansion: ExpansionConfig | None = dataclasses.field(default=None, metadata=OPTIONAL)
    # "none": sums are not divided by numbers of words (R-ASMK)
    norm: Literal["none"] | None = dataclasses.field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        require(self.assignments >= 1, "search.assignments", self.assignments, "1 or more")
        require(self.alpha >= 0, "search.alpha", self.alpha, "0 or more")
        require(-1 <= self.threshold <= 1, "search.threshold", self.threshold, "between -1 and 1")


@dataclasses.dataclass(frozen=True)
class IndexConfig:
    """What an index stores of each residual, and how it is searched unless told otherwise."""

    kernel: Literal["binary", "real", "float32", "float16", "int8"] = "binary"  # the last three: one vector per photo
    search: SearchConfig = SearchConfig()


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """What is trained on. The photos themselves are named on the command line."""

    kind: Literal["folders", "labelled", "sfm120k", "drawn"] = "folders"
    hold_out: float = 0.0  # share of the things that validate and do not train, where no validation set is given
    things: int = 100  # of `drawn`: how many landmarks, and how many views of each
    views: int = 8
    side: int = 192  # longest side of a drawn view in pixels
    synthetic_views: float = 0.0  # share of an epoch's pairs that are two views made from one photo
    balance: float = 0.0  # 0: every pair (or query, without pairs) is as likely as any other; 1: every thing

    def __post_init__(self) -> None:
        require(0 <= self.hold_out < 1, "data.hold_out", self.hold_out, "0 or more, and below 1")
        for name in ("synthetic_views", "balance"):
            require(0 <= getattr(self, name) <= 1, f"data.{name}", getattr(self, name), "between 0 and 1")
        for name, least in (("things", 2), ("views", 2), ("side", 16)):
            require(getattr(self, name) >= least, f"data.{name}", getattr(self, name), f"{least} or more")


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """The loop (Section 4, implementation details)."""

    epochs: int = 200
    queries: int = 2000  # per epoch, without repeats; all there are, if fewer
    tuples_per_step: int = 5
    negatives: int = 5
    negatives_from: Literal["pool", "step"] = "pool"  # "step": all images of other things in the same step
    pool: int = 20000  # images among which an epoch's negatives are looked for; all there are, if fewer
    learning_rate: float = 3e-5
    schedule: Literal["decay", "cosine"] = "decay"
    decay: float = 0.99  # of the learning rate, each epoch
    warm_up: int = 0  # steps over which the learning rate rises to what it is
    trunk_rate: float = 1.0  # of the trunk, as a share of the learning rate
    average: float = 0.0  # of the weights over the steps: how much of the average stays each step; 0 is none
    weight_decay: float = 1e-4
    flip: float = 0.5
    max_side: int = 1024
    least_side: int | None = None  # each step draws its longest side between this and max_side; None: always max_side
    parts: Literal["all", "lit"] = "all"  # "lit": the trunk is frozen and its maps are computed once
    frozen_stages: int = 0  # so many stages of the trunk, from the pixels on, stay as they are
    # Maps of the frozen stages are computed once, and kept in 16 bits; None: they are not
    stored_maps: bool | None = dataclasses.field(default=None, metadata=OPTIONAL)
    precision: Literal["float32", "bf16"] = "float32"
    recompute: bool = False  # one image's graph at a time: a third more work, a fraction of the memory
    whitening_images: int = WHITENING_IMAGES
    template_scale: float = 1.0  # deviation of a new LIT's templates: large ones make features of one ID alike
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"epochs": 0, "queries": 1, "tuples_per_step": 1, "negatives": 1, "pool": 1, "max_side": 16}
        for name, value in {**least, "whitening_images": 1, "seed": 0, "warm_up": 0, "frozen_stages": 0}.items():
            require(getattr(self, name) >= value, f"training.{name}", getattr(self, name), f"{value} or more")
        small = self.least_side is None or 16 <= self.least_side <= self.max_side
        require(small, "training.least_side", self.least_side, f"16 to training.max_side ({self.max_side})")
        if self.stored_maps is False:
            object.__setattr__(self, "stored_maps", None)  # as it was before there was any
        good = not self.stored_maps or (self.frozen_stages > 0 and self.parts == "all")
        require(good, "training.stored_maps", self.stored_maps, "false, unless training.frozen_stages is above 0")
        require(
            self.least_side is None or (self.parts == "all" and not self.stored_maps),
            "training.least_side",
            self.least_side,
            "left out where maps are stored",
        )
        alone = self.negatives_from == "step" and self.tuples_per_step == 1
        require(not alone, "training.tuples_per_step", 1, "2 or more where negatives are those of the step")
        require(0 <= self.average < 1, "training.average", self.average, "0 or more, and below 1")
        require(self.trunk_rate > 0, "training.trunk_rate", self.trunk_rate, "above 0; training.frozen_stages freezes")
        for name in ("learning_rate", "template_scale"):
            require(getattr(self, name) > 0, f"training.{name}", getattr(self, name), "above 0")
        require(0 < self.decay <= 1, "training.decay", self.decay, "above 0 and at most 1")
        require(self.weight_decay >= 0, "training.weight_decay", self.weight_decay, "0 or more")
        require(0 <= self.flip <= 1, "training.flip", self.flip, "between 0 and 1")


@dataclasses.dataclass(frozen=True)
class LossConfig:
    """Weights of the three losses (0 leaves one out, Table 2) and the rules of eligible pairs (Table 1)."""

    superfeature: float = 0.02
    decorrelation: float = 0.1
    pooled: float = 0.0  # the global loss, eq. 2; of a FIRe network with points, that of the points, as HOW is trained
    margin: float = 1.1  # of the super-feature loss
    pooled_margin: float = 0.8
    hinge: Literal["released", "paper"] = "released"
    ratio_test: Literal["lowe", "released", "off"] = "lowe"
    ratio: float = 0.9
    reciprocal: bool = True
    same_id: bool = True
    # Whose attention maps are decorrelated: all images of a tuple as in the paper, or query and positive alone
    decorrelated: Literal["pair"] | None = dataclasses.field(default=None, metadata=OPTIONAL)
    # Bins of AP-GeM's listwise loss, in place of the contrastive one on pooled vectors
    listwise: int | None = dataclasses.field(default=None, metadata=OPTIONAL)
    # Another form of it: images of one bin in all orders (or simplified), or bins of distances
    listwise_form: Literal["ties", "simple-ties", "distances"] | None = dataclasses.field(
        default=None, metadata=OPTIONAL
    )

    def __post_init__(self) -> None:
        for name in ("superfeature", "decorrelation", "pooled"):
            require(getattr(self, name) >= 0, f"losses.{name}", getattr(self, name), "0 or more")
        if self.superfeature == self.decorrelation == self.pooled == 0:
            raise ConfigError("all three losses have weight 0; give losses.superfeature or losses.pooled a weight")
        for name in ("margin", "pooled_margin", "ratio"):
            require(getattr(self, name) > 0, f"losses.{name}", getattr(self, name), "above 0")
        require(self.listwise is None or self.listwise >= 2, "losses.listwise", self.listwise, "2 or more")


@dataclasses.dataclass(frozen=True)
class ValidationConfig:
    """Scoring by the real search: features, a codebook from training photos, an index, mAP."""

    every: int = 5  # epochs; 0 is never
    codebook: CodebookConfig = CodebookConfig()
    codebook_images: int = 20000
    extract: ExtractConfig = ExtractConfig()
    search: SearchConfig = SearchConfig()

    def __post_init__(self) -> None:
        require(self.every >= 0, "validation.every", self.every, "0 or more")
        require(self.codebook_images >= 1, "validation.codebook_images", self.codebook_images, "1 or more")


@dataclasses.dataclass(frozen=True)
class EvaluateConfig:
    """A protocol run: what is extracted, which words, how it is searched."""

    method: Literal["asmk", "pooled"] = "asmk"  # "pooled": one global vector per image (eq. 1), compared as it is
    extract: ExtractConfig = ExtractConfig()
    codebook: CodebookConfig = CodebookConfig()
    codebook_images: int = 20000
    index: IndexConfig = IndexConfig()
    # How the first results are ordered anew, if not by score; the paper has no such step
    rerank: Literal["diffuse"] | None = dataclasses.field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        require(self.codebook_images >= 1, "codebook_images", self.codebook_images, "1 or more")
        require(self.rerank is None or self.method == "asmk", "rerank", self.rerank, "left out where method is pooled")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Everything that decides how a network is trained, except the photos."""

    weights: str | None = None  # what to begin with: a network, or a trunk; None is a new network
    network: NetworkConfig = NetworkConfig()
    data: DataConfig = DataConfig()
    training: TrainingConfig = TrainingConfig()
    losses: LossConfig = LossConfig()
    validation: ValidationConfig = ValidationConfig()
    pretraining: PretrainConfig = PretrainConfig()  # noqa: RUF009 - frozen
    distillation: DistilConfig | None = dataclasses.field(default=None, metadata=OPTIONAL)  # from another network

    def __post_init__(self) -> None:
        method = {"how": "HOW"}.get(self.network.method, self.network.method)
        if self.network.lit is None:
            if self.losses.superfeature or self.losses.decorrelation:
                raise ConfigError(
                    f"{method} has no super-features: set losses.superfeature and losses.decorrelation to 0, "
                    "losses.pooled to 1"
                )
            require(self.training.parts == "all", "training.parts", self.training.parts, f"'all' for {method}")
            require(not self.pretraining.first, "pretraining.first", True, f"false for {method}, which has no LIT")
        made = self.data.synthetic_views
        stored = self.training.parts == "lit" or self.training.stored_maps
        require(not (made and stored), "data.synthetic_views", made, "0 where maps are stored")
        listed = self.losses.listwise is not None and self.training.negatives_from != "step"
        require(
            not listed, "training.negatives_from", "pool", "'step' with the listwise loss, which ranks a whole step"
        )
        vector, whitened = self.network.method in VECTOR_METHODS, self.network.whitened_dim
        require(
            not vector or whitened is None, "network.whitened_dim", whitened, "left out: vectors are whitened later"
        )
        if whitened is None and not vector:
            raise ConfigError("training needs a whitening: give network.whitened_dim, for example 128")


# `fast` was chosen on terrassa12 and rparis6k_mini_ext; docs/profiles.md has the table. It keeps the strongest of each
# scale, not over all: strength grows as the scale shrinks, and coarse scales would push the fine ones out.
_FAST = ExtractConfig(features_per_scale=100, max_side=640, scales=(1.0, 0.707, 0.5, 0.353, 0.25), draft=True)
PROFILES: dict[str, ExtractConfig] = {
    "paper": ExtractConfig(),
    "fast": _FAST,
    "quick": dataclasses.replace(_FAST, max_side=480),
    "large": dataclasses.replace(_FAST, max_side=1024),
}
