"""Values of keyword arguments, as the configuration writes them."""

import os
from typing import Any


def text(value: Any) -> str:
    """A value in the form of the configuration: numbers and paths unchanged, ``True`` as ``true``."""
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


def plain(value: Any) -> str | int | float | bool:
    """A value in a form that JSON has."""
    value = value.item() if hasattr(value, "item") else value
    return value if isinstance(value, (bool, int, float)) else text(value)


def texts(value: Any) -> list[str]:
    """A value, or the values of a list, in the form of the configuration."""
    return [text(one) for one in value] if isinstance(value, (list, tuple)) else [text(value)]


def profiles(profile: Any) -> list[str]:
    """The profiles that were named, as the native module takes them."""
    return [] if profile is None else texts(profile)


def arguments(settings: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """The settings that have a value, as the native module takes them."""
    return [(name, texts(value)) for name, value in settings.items() if value is not None]
