"""Fills the root of an image with an environment, its Python and the libraries that both load.

    python3 root.py ENVIRONMENT ROOT

Paths stay the same below ROOT. There is no shell and no package manager in it, only what a node
runs. Needs strip, ldd and ldconfig, and runs in the image's build.
"""

import compileall
import py_compile
import re
import shutil
import ssl
import subprocess
import sys
import sysconfig
from pathlib import Path

# Tests, windows, build files and installers. Bytecode is compiled again below, for the final paths.
UNUSED = {
    "__pycache__", "test", "tests", "_tests", "idlelib", "tkinter", "turtledemo", "ensurepip",
    "lib2to3", "pydoc_data", "site-packages", "dist-packages",
}  # fmt: skip
# Also the foreign languages of faker, which comes with litestar: 12 MiB.
UNUSED_FORM = re.compile(r"config-.*|(?!en_US)[a-z]{2,3}_[A-Z]{2}")
OF_THE_SYSTEM = ("/etc/os-release", "/etc/nsswitch.conf", "/etc/ld.so.conf", "/etc/ld.so.conf.d")


def main(environment: Path, root: Path) -> None:
    """Copy everything, then strip debug symbols and compile bytecode."""
    # They are links in the system, so that a library has one path.
    for name in ("bin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            (root / "usr" / name).mkdir(parents=True)
            (root / name).symlink_to(f"usr/{name}")
    library = Path(sysconfig.get_path("stdlib"))
    packages = next(environment.glob("lib/python*/site-packages"))
    shutil.copytree(library, below(root, library), ignore=unused)
    shutil.copytree(packages, below(root, packages), ignore=unused)
    copy_links(environment / "bin/python", root)
    for each in (environment / "pyvenv.cfg", *(environment / "bin").glob("hermes*")):
        copy(each, root)
    certificates = ssl.get_default_verify_paths().openssl_cafile
    copy(Path("/etc/ssl/certs/ca-certificates.crt"), root, to=Path(certificates))
    for each in map(Path, OF_THE_SYSTEM):
        if each.exists():
            copy(each, root)

    loading = [*library.rglob("*.so*"), *packages.rglob("*.so*"), Path(sys.executable).resolve()]
    for each in libraries(loading):
        if not each.is_relative_to(packages):
            copy(each, root)
    files = [each for each in root.rglob("*.so*") if is_object(each)]
    subprocess.run(["strip", "--strip-unneeded", *files], check=True)  # noqa: S603, S607 -- of the build
    subprocess.run(["ldconfig", "-r", root], check=True)  # noqa: S603, S607 -- as above
    # Nobody can change the files of an image, so Python need not compare times or hashes.
    for each in (library, packages):
        compileall.compile_dir(
            below(root, each),
            quiet=1,
            stripdir=str(root),
            prependdir="/",
            workers=0,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )


def unused(_: str, names: list[str]) -> set[str]:
    """Which of a folder's entries the image does not need."""
    return {each for each in names if each in UNUSED or UNUSED_FORM.fullmatch(each)}


def below(root: Path, path: Path) -> Path:
    """The path inside the root."""
    return root / path.relative_to("/")


def copy(path: Path, root: Path, to: Path | None = None) -> None:
    """Copy a file or a folder to the same path inside the root, or to another one."""
    target = below(root, to or path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, target, dirs_exist_ok=True)
    else:
        shutil.copy2(path, target)


def copy_links(path: Path, root: Path) -> None:
    """Copy a chain of symbolic links, and the file at its end."""
    while path.is_symlink():
        link = below(root, path)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path.readlink())
        path = path.parent / path.readlink()
    copy(path, root)


def is_object(path: Path) -> bool:
    """Whether this is a file of machine code."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def libraries(files: list[Path]) -> list[Path]:
    """The shared libraries that these files load, the system's loader included."""
    command = ["ldd", *files]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603 -- as above
    missing = [line.strip() for line in found.splitlines() if "not found" in line]
    if missing:
        sys.exit(f"root.py: {missing[0]}")
    words = {word for line in found.splitlines() for word in line.split() if word[0] == "/"}
    return [
        Path(word).parent.resolve() / Path(word).name for word in sorted(words) if word[-1] != ":"
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
