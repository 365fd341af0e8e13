"""Loads a plug-in: an object that a user's function makes."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from hermes_actors.errors import StartupError


def load_plugin(name: str, context: object, *, field: str, noun: str, parts: Sequence[str]) -> Any:
    """Call the function `name` (`module:function`) with `context`, and return the object that it
    makes. `parts` are the attributes that the object must have.

    `field` is the setting and `noun` the kind of object, for error messages. Raises StartupError.
    """
    module, _, attribute = name.partition(":")
    try:
        make = getattr(import_module(module), attribute)
    # Plug-ins are foreign code, so any exception is possible, here and below.
    except Exception as error:
        why = error if isinstance(error, ImportError | AttributeError) else repr(error)
        raise StartupError(
            f"{field}: '{name}' cannot be loaded: {why}; write module:function, and install the "
            "module beside hermes_actors"
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
