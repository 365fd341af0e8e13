"""Files that must stay where they are while they are written to."""

import pytest

from hermes_actors.log import folder
from hermes_actors.log.folder import WatchedFiles


@pytest.fixture
def files(tmp_path):
    files = [tmp_path / name for name in "abc"]
    for file in files:
        file.touch()
    return files


@pytest.mark.parametrize("does", ["begins a file", "deletes a file"])
def test_what_the_writer_does_while_others_look_loses_nothing(does, files, monkeypatch):
    watched, identity_of = WatchedFiles(), folder._identity
    for file in files:
        watched.add(file)
    looked_at = []

    def look_slowly(file):
        # The writer's thread goes on meanwhile.
        looked_at.append(file)
        if len(looked_at) == 2 and does == "begins a file":
            begun = file.with_name("begun")
            begun.touch()
            watched.add(begun)
        elif len(looked_at) == 2:
            watched.drop(file)
            file.unlink()
        return identity_of(file)

    monkeypatch.setattr(folder, "_identity", look_slowly)
    assert watched.lost() == ""
    assert set(files) <= set(looked_at)


def test_what_others_delete_or_replace_is_lost(files):
    watched = WatchedFiles()
    for file in files:
        watched.add(file)
    files[2].rename(files[1])
    assert watched.lost() == "b"
    watched.drop(files[1])
    assert watched.lost() == "c"
