"""Results as a tuple, with the table of the command."""

from collections.abc import Iterable
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Table(tuple[T, ...]):
    """A tuple that ``print`` shows as the command does."""

    _text: str

    def __new__(cls, values: Iterable[T], text: str) -> Self:
        made = super().__new__(cls, values)
        made._text = text
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (tuple(self), self._text)

    def __str__(self) -> str:
        return self._text
