"""The page that an object shows in a notebook: a title, its state, and facts, without scripts or colours of its own."""

import html
from collections.abc import Iterable

# Texts from users, such as names of columns and kernels of many units, are cut here.
_LONGEST = 300


def page(title: str, state: str, facts: Iterable[tuple[str, str]]) -> str:
    """Return the HTML of a title, a few words on the state, and a table of names and values."""
    lines = "".join(
        f'<tr><th scope="row" style="text-align:left">{_escaped(name)}</th>'
        f'<td style="text-align:left">{_escaped(value)}</td></tr>'
        for name, value in facts
    )
    heading = f"<div><b>{_escaped(title)}</b>: {_escaped(state)}</div>"
    return f'<div class="streamkpca">{heading}<table style="color:inherit">{lines}</table></div>'


def _escaped(text: str) -> str:
    return html.escape(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}...")
