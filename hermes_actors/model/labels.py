"""Labels of groups, topics, subscriptions and OAuth providers: small texts to select them by."""

import re
from collections.abc import Iterator, Mapping

LABELS_MAX = 16
LABEL_CHARACTERS_MAX = 63

# No dots in keys, because queries use them for nested fields.
_KEY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?")


def label_violations(path: str, labels: Mapping[str, str]) -> Iterator[str]:
    """Yield the violations in these labels; `path` is the field's."""
    if len(labels) > LABELS_MAX:
        yield f"{path} size must be between 0 and {LABELS_MAX}"
        return
    for key, value in labels.items():
        shown = key[: LABEL_CHARACTERS_MAX + 1]
        for what, text, rule in (("key", key, _KEY), ("value", value, _VALUE)):
            if len(text) > LABEL_CHARACTERS_MAX or not rule.fullmatch(text):
                yield (
                    f"{path}[{shown}]: the {what} must have at most {LABEL_CHARACTERS_MAX} "
                    f'characters and match "{rule.pattern}"'
                )
