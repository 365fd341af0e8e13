"""What a Dockerfile's stages make of an image, as far as a launcher without Docker needs it."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from hermes_local.interpolation import ComposeWrong


@dataclass
class Stage:
    """One stage: `instructions` in order; `copied` maps paths of the image to the context's."""

    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)
    copied: dict[str, str] = field(default_factory=dict)

    def last(self, name: str) -> str | None:
        """The argument of the last such instruction."""
        return next((text for each, text in reversed(self.instructions) if each == name), None)

    def words(self, name: str) -> tuple[str, ...]:
        """The same as a list, from its JSON form. Raises ComposeWrong."""
        text = self.last(name)
        if text is None:
            return ()
        try:
            words = json.loads(text)
        except ValueError as error:
            raise ComposeWrong(f"Dockerfile: {name}: only the JSON form is known here") from error
        return tuple(str(each) for each in words)


def read(path: Path) -> list[Stage]:
    """The stages of a Dockerfile. Raises ComposeWrong."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ComposeWrong(f"{path}: cannot be read: {error.strerror}") from error
    stages: list[Stage] = []
    for name, argument in instructions(text):
        if name == "FROM":
            stages.append(Stage(argument.split()[0]))
            continue
        if not stages:
            continue
        stages[-1].instructions.append((name, argument))
        if name == "COPY" and not argument.startswith("--from"):
            *sources, target = argument.split()
            for source in sources:
                whole = target.rstrip("/")
                if target.endswith("/") and not source.endswith("/"):
                    whole = f"{whole}/{Path(source).name}"
                stages[-1].copied[whole] = source
    if not stages:
        raise ComposeWrong(f"{path}: has no FROM")
    return stages


def instructions(text: str) -> list[tuple[str, str]]:
    """(instruction, its whole argument) in order, continued lines joined, comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines) + "\n")
    return [
        (word.upper(), rest.strip())
        for word, _, rest in (line.strip().partition(" ") for line in joined.splitlines())
        if word
    ]
