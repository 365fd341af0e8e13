"""Writes the Python stubs of hermes/v1/broker.proto: `python proto/generate.py [FOLDER]`."""

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).parent
PACKAGED = HERE.parent / "hermes_actors" / "rpc" / "v1"
SOURCE = "hermes/v1/broker.proto"


def generate(folder: Path) -> None:
    """Write the modules into `folder`, for the package that has them in the product."""
    well_known = Path(protoc.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as made:
        args = [f"-I{HERE}", f"-I{well_known}"]
        args += [f"--{kind}_out={made}" for kind in ("python", "pyi", "grpc_python")]
        if protoc.main(["protoc", *args, SOURCE]):
            raise SystemExit(f"protoc failed on {SOURCE}")
        for each in sorted((Path(made) / "hermes" / "v1").iterdir()):
            # protoc imports by the path of the .proto, which has other folders than the package.
            text = each.read_text().replace(
                "from hermes.v1 import", "from hermes_actors.rpc.v1 import"
            )
            (folder / each.name).write_text(text)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGED)
