"""Groups of photos of the same thing and of copies, which of them to keep, and a script that tidies up."""

from superfeat.duplicates.find import (
    COPY_SIMILARITY,
    Group,
    Looked,
    Member,
    find_copies,
    find_duplicates,
    least_likeness,
)

__all__ = ["COPY_SIMILARITY", "Group", "Looked", "Member", "find_copies", "find_duplicates", "least_likeness"]
