"""Archives of strangers: whatever bytes they are made of, they are read, or refused with a reason."""

import hypothesis.strategies as st
from hypothesis import given, settings

from fixtures_archives import tar_bytes, zip_bytes
from superfeat.addresses.archives import ArchiveDirectory, read_directory, read_member

MEMBERS = {"a.jpg": b"first" * 30, "folder/b.jpg": b"second" * 40, 120 * "long/" + "c.jpg": b"third"}
WHOLE = {"a.tar": tar_bytes(MEMBERS), "a.zip": zip_bytes(MEMBERS)}
change = st.tuples(st.integers(0, 1 << 14), st.binary(min_size=1, max_size=8))


def look(name: str, data: bytes) -> tuple[ArchiveDirectory, dict[str, bytes]]:
    """What is in it, and what can be read of that."""

    def read(start: int, length: int) -> bytes:
        assert start >= 0
        assert 0 <= length <= len(data) + (1 << 17), "no more is asked for than there can be"
        return data[start : start + length]

    found = read_directory(name, read, (len(data), 0))
    contents = {}
    for member in found.members.values():
        try:
            contents[member.name] = read_member(member, read)
        except OSError:
            continue
    return found, contents


@settings(deadline=None, max_examples=150)
@given(kind=st.sampled_from(sorted(WHOLE)), changes=st.lists(change, min_size=1, max_size=4))
def test_changed_bytes(kind: str, changes: list[tuple[int, bytes]]) -> None:
    data = bytearray(WHOLE[kind])
    for place, content in changes:
        place %= len(data)
        data[place : place + len(content)] = content
    found, contents = look(kind, bytes(data))
    assert all(len(content) == found.members[name].stamp[0] for name, content in contents.items())
    assert all(not name.startswith("/") and ".." not in name.split("/") for name in found.members)


@settings(deadline=None, max_examples=50)
@given(kind=st.sampled_from(sorted(WHOLE)), data=st.binary(max_size=2000))
def test_any_bytes(kind: str, data: bytes) -> None:
    look(kind, data)


@settings(deadline=None, max_examples=50)
@given(kind=st.sampled_from(sorted(WHOLE)), before=st.binary(max_size=600), after=st.binary(max_size=600))
def test_a_member_that_is_whole_is_never_read_as_another(kind: str, before: bytes, after: bytes) -> None:
    """Bytes before a zip and behind any archive are allowed or damage; what is read is what was packed."""
    _, contents = look(kind, (before if kind == "a.zip" else b"") + WHOLE[kind] + after)
    assert contents.items() <= MEMBERS.items()
