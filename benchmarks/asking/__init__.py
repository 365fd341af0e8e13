"""What the benchmarks' command lines share: lists as options, what a result says of its run."""

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
    """What was asked for, as JSON can say it."""
    return {
        key: str(value) if isinstance(value, Path) else value for key, value in vars(asked).items()
    }


def machine() -> dict[str, Any]:
    """What a run is measured on, and how busy that is when it begins."""
    return {
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }
