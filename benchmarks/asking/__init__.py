"""The command lines' common parts: lists as options, and a result's account of its run."""

import argparse
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any


def names_of(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """For argparse: some of these names, with commas between them."""

    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := set(chosen) - set(known):
            raise argparse.ArgumentTypeError(
                f"{', '.join(sorted(unknown))}: not one of {', '.join(known)}"
            )
        return chosen

    return parse


def numbers(text: str) -> list[int]:
    """For argparse: integers with commas between them."""
    return [int(each) for each in text.split(",")]


def options(asked: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the run, as JSON can say them."""
    return {
        key: str(value) if isinstance(value, Path) else value for key, value in vars(asked).items()
    }


def machine() -> dict[str, Any]:
    """Return the machine's size, and how busy it is when a run begins."""
    return {
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }
