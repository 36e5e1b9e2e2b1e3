"""What objects show in notebooks: HTML without scripts, in the colours and on the background of the page."""

import html
from collections.abc import Iterable, Sequence

# Texts from users, such as names of columns and kernels of many units, are cut here.
_LONGEST = 300
_PILL = "border:1px solid currentColor;border-radius:1em;padding:0 .6em;margin-left:.5em;font-size:.85em"
_BAR_WIDTH, _BAR_GAP, _HEIGHT = 14, 4, 60
_MOST_BARS = 40


def escaped(text: str) -> str:
    """Return a text of bounded length for use in HTML."""
    return html.escape(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}...")


def table_of(lines: str) -> str:
    """Return a table of lines in HTML; some pages would give it a colour of their own."""
    return f'<table style="color:inherit">{lines}</table>'


def rows_of(facts: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and values, which are text."""
    lines = "".join(
        f'<tr><th scope="row" style="text-align:left">{escaped(name)}</th>'
        f'<td style="text-align:left">{escaped(value)}</td></tr>'
        for name, value in facts
    )
    return table_of(lines)


def columns_of(names: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table with a header of names and lines of text."""
    head = "".join(f'<th scope="col">{escaped(name)}</th>' for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{escaped(text)}</td>' for text in line)}</tr>" for line in lines)
    return table_of(f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>")


def bars(shares: Sequence[float], label: str) -> str:
    """Return a picture of numbers from 0 to 1 as bars, the tallest of full height, over a `label` that names them."""
    shown = [max(float(share), 0.0) for share in shares[:_MOST_BARS]]
    tallest = max(shown, default=0.0)
    if not tallest > 0.0:
        return ""
    step = _BAR_WIDTH + _BAR_GAP
    marks = "".join(
        f'<rect x="{i * step}" y="{_HEIGHT * (1.0 - share / tallest):.1f}" width="{_BAR_WIDTH}" '
        f'height="{_HEIGHT * share / tallest:.1f}"><title>{i}: {share:.2%}</title></rect>'
        for i, share in enumerate(shown)
    )
    return (
        f'<svg role="img" aria-label="{escaped(label)}" width="{len(shown) * step}" height="{_HEIGHT}" '
        f'fill="currentColor" style="display:block;margin:.4em 0 0">{marks}</svg>'
        f'<div style="font-size:.85em">{escaped(label)}</div>'
    )


def folded(summary: str, contents: str) -> str:
    """Return contents that a click unfolds."""
    return f"<details><summary>{escaped(summary)}</summary>{contents}</details>"


def page(title: str, state: str, *parts: str) -> str:
    """Return the whole of what an object shows; `state` is a few words beside its title."""
    pill = f'<span style="{_PILL}">{escaped(state)}</span>' if state else ""
    return f'<div class="streamkpca"><div><b>{escaped(title)}</b>{pill}</div>{"".join(parts)}</div>'
