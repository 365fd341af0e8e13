"""Loads what users bring along: an object that a function of theirs makes, or one clear error."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from hermes_actors.errors import StartupError


def load_plugin(name: str, context: object, *, field: str, noun: str, parts: Sequence[str]) -> Any:
    """Return what the function `module:function` makes of the context; it has all of `parts`.

    `field` is the configuration's and `noun` what is made, for errors. Raises StartupError.
    """
    module, _, attribute = name.partition(":")
    try:
        make = getattr(import_module(module), attribute)
    # It is not our code, neither here nor below: anything may come out of it.
    except Exception as error:
        why = error if isinstance(error, ImportError | AttributeError) else repr(error)
        raise StartupError(
            f"{field}: '{name}' cannot be loaded: {why}; it is module:function, and the module is "
            "installed beside hermes_actors"
        ) from error
    try:
        made = make(context)
    except Exception as error:
        raise StartupError(
            f"{field}: '{name}' cannot be made: {error!r}; the function is called with one "
            f"argument, the context, and returns a {noun}"
        ) from error
    missing = [part for part in parts if not hasattr(made, part)]
    if missing:
        raise StartupError(
            f"{field}: '{name}' made a {type(made).__name__}, which has no {', '.join(missing)}; "
            f"the function returns a {noun}"
        )
    return made
