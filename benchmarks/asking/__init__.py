"""Common parts of the command lines: options with lists, and a description of the run."""

import argparse
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any


def names_of(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """For argparse: some of these names, separated by commas."""

    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := set(chosen) - set(known):
            raise argparse.ArgumentTypeError(
                f"{', '.join(sorted(unknown))}: not one of {', '.join(known)}"
            )
        return chosen

    return parse


def numbers(text: str) -> list[int]:
    """For argparse: integers separated by commas."""
    return [int(each) for each in text.split(",")]


def options(asked: argparse.Namespace) -> dict[str, Any]:
    """The options of the run, in JSON-compatible form."""
    return {
        key: str(value) if isinstance(value, Path) else value for key, value in vars(asked).items()
    }


def machine() -> dict[str, Any]:
    """The machine's size, and its load when a run begins."""
    return {
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }
