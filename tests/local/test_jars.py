"""What the launcher does before any Java runs: tools, versions, the cache of jars."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from hermes_local.failures import LaunchFailed
from hermes_local.jars import KAFKA, JarSet
from hermes_local.java import feature_version, java_command, maven_command


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def kafka(tmp_path: Path) -> JarSet:
    """A copy that lies in no checkout."""
    folder = tmp_path / "site-packages" / "hermes_local"
    folder.mkdir(parents=True)
    copy = folder / "pom.xml"
    copy.write_bytes(KAFKA.pom.read_bytes())
    return replace(KAFKA, pom=copy)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25-ea" 2025-09-16', 25),
        ("bash: java: not found", None),
    ],
)
def test_the_version_is_read_from_what_java_prints(text, version):
    assert feature_version(text) == version


def test_a_missing_java_is_one_sentence_with_the_way_out(tmp_path):
    with pytest.raises(LaunchFailed, match=r"no java on the PATH; install a JDK 17 or newer"):
        java_command({"PATH": str(tmp_path)})


def test_java_home_wins_over_the_path(tmp_path):
    home = tmp_path / "jdk"
    java = program(home / "bin" / "java", """echo 'openjdk version "21.0.1"' >&2""")
    assert java_command({"PATH": "", "JAVA_HOME": str(home)}) == str(java)


def test_a_missing_maven_is_one_sentence_with_two_ways_out(tmp_path):
    with pytest.raises(LaunchFailed, match=r"no mvn on the PATH; install Maven.*LOCAL_KAFKA_JARS"):
        maven_command("Kafka", "LOCAL_KAFKA_JARS", {"PATH": str(tmp_path)})


def test_a_checkout_keeps_its_jars_to_itself():
    project = Path(__file__).resolve().parents[2]
    assert KAFKA.cache_folder({}).parent == project / ".cache" / "kafka"


def test_an_installation_keeps_its_jars_in_the_users_cache(kafka, environment, tmp_path):
    folder = kafka.cache_folder(environment)
    assert folder.parent == tmp_path / "cache" / "hermes_actors" / "kafka"
    del environment["XDG_CACHE_HOME"]
    assert kafka.cache_folder(environment).parent.parent.parent == Path.home() / ".cache"


def test_given_jars_are_used_as_they_are_and_in_order(tmp_path):
    for name in ("b.jar", "a.jar", "readme.txt"):
        (tmp_path / name).touch()
    found = KAFKA.classpath({"LOCAL_KAFKA_JARS": str(tmp_path)})
    assert found == f"{tmp_path}/a.jar{os.pathsep}{tmp_path}/b.jar"


def test_jars_are_fetched_once_however_many_ask_at_the_same_time(kafka, environment, tmp_path):
    calls = tmp_path / "calls"
    program(
        tmp_path / "bin" / "mvn",
        f'echo called >> {calls}\nfor each; do case "$each" in\n'
        '-Djars.folder=*) touch "${each#*=}/kafka.jar";; esac; done',
    )
    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(lambda _: kafka.folder(environment), range(8)))
    assert folders == {kafka.cache_folder(environment)}
    assert [path.name for path in folders.pop().iterdir()] == ["kafka.jar"]
    assert calls.read_text() == "called\n"


def test_a_failed_fetch_is_one_sentence_and_leaves_nothing_half_done(kafka, environment, tmp_path):
    mvn = program(
        tmp_path / "bin" / "mvn",
        "echo '[ERROR] Could not resolve org.apache.kafka:kafka_2.13.'\n"
        "echo '[ERROR] more'\nexit 1",
    )
    with pytest.raises(LaunchFailed) as failure:
        kafka.folder(environment)
    assert failure.value.message == (
        "Maven could not fetch Kafka's jars: exit code 1, Could not resolve "
        "org.apache.kafka:kafka_2.13; check the network and Maven's settings, or set "
        "LOCAL_KAFKA_JARS to a folder that has the jars"
    )
    folder = kafka.cache_folder(environment)
    assert [path.name for path in folder.parent.iterdir()] == [f"{folder.name}.lock"]

    # The next try starts over.
    program(mvn, 'touch "${5#*=}/kafka.jar"\n[ -f "${5#*=}/kafka.jar" ]')
    assert kafka.folder(environment) == folder


def test_what_keeps_two_from_fetching_at_once_lies_beside_the_jars(
    kafka: JarSet, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each of them may have a folder of its own for what is temporary.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    fetched = kafka.cache_folder(environment)

    def fetch(_jars: JarSet, folder: Path, _environment: dict[str, str]) -> None:
        assert folder.with_suffix(".lock").exists()
        folder.mkdir()

    monkeypatch.setattr(JarSet, "_fetch", fetch)
    assert kafka.folder(environment) == fetched
