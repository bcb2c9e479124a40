"""What is installed, what this machine offers, what an index needs, and so why something is slow.

Every look is guarded: on a system that does not tell, or that is broken, the rest is still said. What has to be
imported to be seen is looked at in another process.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from superfeat.doctor.checks import Check, advise, guarded

__all__ = ["Check", "advise", "examine"]


def examine(index: Path | None = None) -> Iterator[Check]:
    """Looks at everything, and at an index if one is named."""
    from superfeat.doctor import machine, software

    findings = software.run_probe()
    workers, weights = findings.get("workers", {}), findings.get("weights", {})
    capability = findings.get("devices", {}).get("capability")
    yield from guarded("python", software.check_python)
    yield from guarded("packages", lambda: software.check_packages(findings))
    yield from guarded("extras", software.check_extras)
    yield from guarded("device", lambda: software.check_device(findings))
    yield from guarded("cores", machine.check_cores)
    yield from guarded("processor", lambda: machine.check_processor(capability=capability))
    yield from guarded("load", machine.check_load)
    yield from guarded("threads", lambda: machine.check_threads(os.environ))
    yield from guarded("memory", lambda: machine.check_memory(workers))
    yield from guarded("speed", lambda: software.check_speed(findings))
    yield from guarded("int8", software.check_int8)
    yield from guarded("compiled code", lambda: software.check_compiled_code(findings))
    yield from guarded("weights", lambda: software.check_weights(findings))
    places = [Path(weights.get("folder") or "."), Path(index or ".")]
    yield from guarded("disk", lambda: machine.check_disks(places))
    if index is not None:
        from superfeat.doctor.collection import check_index

        yield from guarded("index", lambda: check_index(index, weights.get("names", {})))
