"""AP-GeM (dirtorch): GeM and a layer, trained for average precision itself; one scale, PCA at the end."""

from superfeat.config import PoolingConfig, TrunkConfig
from superfeat.methods.vectors import vector_method
from superfeat.nets.global_vector import VectorRules

APGEM = vector_method(
    "apgem",
    "AP-GeM",
    PoolingConfig("gem", layer=2048),
    VectorRules(unit_before_layer=False, floor=0.0, scales="signed"),
    scales=(1.0,),
    arch=TrunkConfig("resnet101", stages=4),
)
