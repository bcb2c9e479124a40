"""A drop-in for the public `asmk` package, on superfeat's own index: the classes and calls that its users make.

`superfeat.asmk.install()`, or `sys.modules["asmk"] = superfeat.asmk`, before the program imports `asmk`.
"""

import sys

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


def install() -> None:
    """From now on, in this process, `import asmk` and `from asmk.kernel import ...` mean these modules."""
    sys.modules["asmk"] = sys.modules[__name__]
    for module in MODULES:
        sys.modules["asmk." + module.__name__.rsplit(".", 1)[1]] = module
