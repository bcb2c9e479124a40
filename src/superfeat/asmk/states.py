"""What the files of `asmk` hold: a type, params, and a state."""

from typing import Any

from superfeat.errors import StoreError


def require_state(contents: Any, kind: str) -> dict[str, Any]:
    """The state of an object of that kind, or an error."""
    state = contents.get("state") if isinstance(contents, dict) and contents.get("type") == kind else None
    if not isinstance(state, dict) or not isinstance(contents.get("params", {}), dict):
        raise StoreError(f"this is not a {kind} of asmk (type, params and state); give the file that asmk wrote")
    return state
