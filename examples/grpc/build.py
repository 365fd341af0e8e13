"""Builds the client in Go or Java from the .proto, and prints the command that runs it.

Go's module proxy, or Maven, delivers the libraries and generators.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).resolve().parent
PROTO = HERE.parents[1] / "proto"
GENERATORS = (
    "google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2",
)


def build(language: str, folder: Path) -> list[str]:
    """Build the client in this folder. Returns the command that runs it."""
    place = shutil.copytree(HERE / language, folder / language, dirs_exist_ok=True)
    return _go(place) if language == "go" else _java(place)


def _go(place: Path) -> list[str]:
    for each in GENERATORS:
        _run(["go", "install", each], place, GOBIN=str(place / "bin"))
    plugins = [f"--plugin={place}/bin/protoc-gen-{name}" for name in ("go", "go-grpc")]
    outputs = [f"--{name}_out={place}" for name in ("go", "go-grpc")]
    well_known = Path(protoc.__file__).parent / "_proto"
    source = "hermes/v1/broker.proto"
    if protoc.main(["protoc", f"-I{PROTO}", f"-I{well_known}", *plugins, *outputs, source]):
        raise SystemExit(f"protoc failed on {source}")
    _run(["go", "build", "-o", "client", "."], place)
    return [str(place / "client")]


def _java(place: Path) -> list[str]:
    _run(["mvn", "-q", "-B", f"-Dprotos={PROTO}", "process-classes"], place)
    libraries = (place / "target" / "classpath").read_text()
    return ["java", "-cp", f"{place}/target/classes{os.pathsep}{libraries}", "Client"]


def _run(command: list[str], place: Path, **variables: str) -> None:
    # stdout is for the command.
    environment = {**os.environ, **variables}
    subprocess.run(command, cwd=place, check=True, env=environment, stdout=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("language", choices=["go", "java"])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    print(" ".join(build(given.language, given.folder.resolve())))
