"""What addresses are, and that their secrets stay in memory."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from superfeat.addresses.text import (
    ending_of,
    fixed_part,
    hide_secrets,
    is_archive,
    is_packed,
    is_remote,
    parent_of,
    private,
    public,
    split_member,
)

SIGNED = "https://host.example/a/b.jpg?X-Amz-Credential=AKIA&X-Amz-Signature=abc"
LETTERS = st.text("abcdefghijklmnopqrstuvwxyz0123456789-._~", min_size=1, max_size=12)


@pytest.mark.parametrize("address", ["s3://b/k", "gs://b", "memory://x", "HTTP://h/x", "abfs://c@a.example/x"])
def test_what_lies_elsewhere(address: str) -> None:
    assert is_remote(address)


@pytest.mark.parametrize("path", ["photos", "/photos/a.jpg", "C://photos", "file:///photos", "a:b", "", "x/s3://b"])
def test_what_lies_here(path: str) -> None:
    assert not is_remote(path)


def test_archives_and_what_cannot_be_read_in_parts() -> None:
    assert [is_archive(name) for name in ("a.tar", "A.ZIP", "https://h/a.tar?id=3", "a.tar.gz", "a.jpg")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert [is_packed(name) for name in ("a.tar.gz", "a.tgz", "a.7z", "a.tar")] == [True, True, True, False]
    assert ending_of("https://h/a.JPG?id=3.png") == ".jpg"


def test_members_by_their_path() -> None:
    assert split_member("s3://b/x.tar/k/a.jpg") == ("s3://b/x.tar", "k/a.jpg")
    assert split_member("/photos/x.ZIP/a.zip/b.jpg") == ("/photos/x.ZIP", "a.zip/b.jpg"), "the outer one is opened"
    assert split_member("https://h/x.tar?id=3/a.jpg") == ("https://h/x.tar?id=3", "a.jpg")
    assert split_member("s3://b/x.tar") is None
    assert split_member("s3://b/x.tar/") is None


def test_folders_of_addresses_and_of_patterns() -> None:
    assert parent_of("https://h/a/list.txt?id=3") == "https://h/a"
    assert fixed_part("s3://b/a/") == "s3://b/a"
    assert fixed_part("s3://b/a/x*/y[12].jpg") == "s3://b/a"
    assert fixed_part("s3://b/[a]/x*.jpg") == "s3://b"
    assert fixed_part("s3://b/[2024] summer/") == "s3://b/[2024] summer"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("https://me:word@host.example/a.jpg", "https://host.example/a.jpg"),
        ("https://token@host.example/a.jpg", "https://host.example/a.jpg"),
        ("sftp://me:word@host.example/a", "sftp://host.example/a"),
        ("s3://id:secret@bucket/a", "s3://bucket/a"),
        ("abfs://container@account.example/a", "abfs://container@account.example/a"),
        (SIGNED, "https://host.example/a/b.jpg"),
        ("https://h/a.jpg?sv=2022&se=2030&sr=b&sig=xyz", "https://h/a.jpg"),
        ("https://h/a.jpg?access_token=1", "https://h/a.jpg"),
        ("https://h/a.jpg?v=" + 41 * "x", "https://h/a.jpg"),
        ("https://h/a.jpg?justonelongword", "https://h/a.jpg?justonelongword"),
        ("https://h/image?id=17&size=large", "https://h/image?id=17&size=large"),
    ],
)
def test_secrets_are_not_shown(given: str, shown: str) -> None:
    assert public(given) == shown
    assert public(shown) == shown
    assert hide_secrets(f"cannot read '{given}': gone") == f"cannot read '{shown}': gone"


def test_who_gave_a_secret_can_use_it() -> None:
    assert private(public(SIGNED)) == SIGNED
    public("https://me:word@known.example/list.txt")
    assert private("https://known.example/a.jpg") == "https://me:word@known.example/a.jpg"
    assert private("https://other.example/a.jpg") == "https://other.example/a.jpg"


@given(user=LETTERS, word=LETTERS, path=LETTERS, name=st.sampled_from(["sig", "X-Amz-Signature", "token"]))
def test_no_secret_survives(user: str, word: str, path: str, name: str) -> None:
    secret, mark = f"u-{user}-u:w-{word}-w", f"s-{word}-s"
    shown = public(f"https://{secret}@host.example/{path}?a=1&{name}={mark}")
    assert shown == f"https://host.example/{path}"
    assert private(shown) == f"https://{secret}@host.example/{path}?a=1&{name}={mark}"
