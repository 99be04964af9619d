"""Results as a tuple, with the table of the command."""

import html
from collections.abc import Iterable
from typing import Any, Self, TypeVar

T = TypeVar("T")


def preformatted(text: str) -> str:
    """Text of aligned columns as HTML, whose lines do not wrap."""
    return f'<pre style="line-height: 1.2; white-space: pre; overflow-x: auto">{html.escape(text)}</pre>'


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

    def _repr_html_(self) -> str:
        """The table in a notebook."""
        return preformatted(self._text)
