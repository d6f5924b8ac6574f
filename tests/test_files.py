"""Files are there whole, or not at all."""
from __future__ import annotations

import os
import stat

import pytest

from soybean_mx.files import replaced, write_bytes


def test_a_file_takes_the_place_of_another_when_it_is_complete(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    with replaced(str(path)) as temporary:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write("after")
        assert path.read_text() == "before"
    assert path.read_text() == "after" and os.listdir(tmp_path) == ["file"]


def test_a_file_stays_where_writing_fails(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(ZeroDivisionError):
        with replaced(str(path)):
            raise ZeroDivisionError
    assert path.read_text() == "before" and os.listdir(tmp_path) == ["file"]


def test_others_may_read_what_was_written(tmp_path):
    umask = os.umask(0o022)
    try:
        write_bytes(str(tmp_path / "file"), b"content")
    finally:
        os.umask(umask)
    assert stat.S_IMODE(os.stat(tmp_path / "file").st_mode) == 0o644
