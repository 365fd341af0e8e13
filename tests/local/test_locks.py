"""Locks whose files are removed, and what is removed after a failed call."""

import threading

import pytest

from hermes_local.leftovers import Leftovers
from hermes_local.locks import exclusive


def test_one_at_a_time_holds_a_lock_though_its_file_comes_and_goes(tmp_path):
    path = tmp_path / "new" / "data" / "lock"
    inside: list[int] = []
    seen: list[int] = []

    def go_on(number):
        for _ in range(100):
            with exclusive(path):
                inside.append(number)
                seen.append(len(inside))
                inside.remove(number)

    threads = [threading.Thread(target=go_on, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 400
    assert not path.exists()


def test_a_lock_that_is_held_refuses_who_does_not_wait_and_stays(tmp_path):
    path = tmp_path / "lock"
    with exclusive(path):
        with pytest.raises(BlockingIOError), exclusive(path, waits=False):
            pass
        assert path.exists()
    assert not path.exists()


def test_folders_that_were_made_for_a_lock_go_with_it(tmp_path):
    with exclusive(tmp_path / "new" / "data" / "lock"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_made_for_a_lock_stays_when_something_was_put_there(tmp_path):
    path = tmp_path / "new" / "lock"
    with exclusive(path):
        (path.parent / "kept").touch()
    assert [each.name for each in path.parent.iterdir()] == ["kept"]


def test_what_is_new_is_removed_but_what_is_to_be_kept(tmp_path):
    (tmp_path / "services" / "old").mkdir(parents=True)
    leftovers = Leftovers(tmp_path)
    (tmp_path / "services" / "old" / "log").touch()
    new = tmp_path / "services" / "new"
    (new / "files").mkdir(parents=True)
    (new / "log").touch()
    (tmp_path / "volumes" / "a").mkdir(parents=True)
    (tmp_path / "linked").symlink_to(tmp_path / "services" / "old")
    leftovers.remove([new / "log"])
    left = sorted(str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*"))
    assert left == [
        *("services", "services/new", "services/new/log", "services/old", "services/old/log")
    ]
