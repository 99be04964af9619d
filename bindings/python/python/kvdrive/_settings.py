"""Values of keyword arguments, as the configuration writes them."""

import os
from typing import Any


def text(value: Any) -> str:
    """A value as the configuration has it: numbers and paths as they are, ``True`` as ``true``."""
    match value:
        case bool():
            return str(value).lower()
        case os.PathLike():
            return os.fspath(value)
        case str() | int() | float():
            return str(value)
        case _ if hasattr(value, "item"):  # A scalar of NumPy.
            return text(value.item())
    raise TypeError(f"a setting is a number, a text, a bool or a path, not {type(value).__name__}")


def arguments(settings: dict[str, Any]) -> list[tuple[str, str]]:
    """The settings that have a value, as the native module takes them."""
    return [(name, text(value)) for name, value in settings.items() if value is not None]
