"""The nearest words. There is one exact way, on the CPU; what is said of a GPU is accepted and has no effect.

The names with Faiss are there because programs name them: MASt3R derives a class from one and puts it in place of the
other. What such a class does is not asked for.
"""


class FaissL2Index:
    """On the CPU."""

    gpu_id: object = None


class FaissGpuL2Index(FaissL2Index):
    """The same, where a GPU is named."""

    def __init__(self, gpu_id: object) -> None:
        self.gpu_id = gpu_id


def initialize_index(gpu_id: object = None) -> FaissL2Index:
    """What `params["index"]` asks for."""
    return FaissL2Index() if gpu_id is None else FaissGpuL2Index(gpu_id)
