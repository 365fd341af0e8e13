"""A subscription's endpoint as it is written: one address, or several with `;` between them."""

import re

# A semicolon may stand in a path, too; before a scheme it separates.
_BETWEEN = re.compile(r";(?=[A-Za-z][A-Za-z0-9+.-]*://)")


def split_addresses(endpoint: str) -> tuple[str, ...]:
    """The addresses of `http://a/in;http://b/in`, in their order. A `;` that is followed by
    anything but a scheme and `://` belongs to its address.
    """
    return tuple(_BETWEEN.split(endpoint))
