"""A drop-in for the public `asmk` package, on superfeat's own index: the classes and calls that its users make.

`superfeat.asmk.install()`, or `sys.modules["asmk"] = superfeat.asmk`, before the program imports `asmk`.
"""

import importlib.util
import sys
import types

from superfeat.asmk import asmk_method, codebook, hamming, index, inverted_file, io_helpers, kernel
from superfeat.asmk.asmk_method import ASMKMethod

MODULES = (asmk_method, codebook, hamming, index, inverted_file, io_helpers, kernel)
__all__ = [
    "ASMKMethod",
    "asmk_method",
    "codebook",
    "hamming",
    "index",
    "install",
    "inverted_file",
    "io_helpers",
    "kernel",
]


def install(*, faiss: bool = False) -> None:
    """From now on, in this process, `import asmk` and `from asmk.kernel import ...` mean these modules.

    With `faiss`, and where that package is not installed, `import faiss` gives an empty module: MASt3R imports it to
    see whether it can use a GPU, and goes on if it cannot.
    """
    if faiss and "faiss" not in sys.modules and importlib.util.find_spec("faiss") is None:
        sys.modules["faiss"] = types.ModuleType("faiss", "An empty stand-in by superfeat.asmk.")
    sys.modules["asmk"] = sys.modules[__name__]
    for module in MODULES:
        sys.modules["asmk." + module.__name__.rsplit(".", 1)[1]] = module
