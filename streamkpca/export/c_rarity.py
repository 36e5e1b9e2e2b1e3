"""The part `c_rarity.c` of C files: how rare a row is, and what is expected of its numbers."""

from importlib.resources import files

from streamkpca.export.c_text import CText
from streamkpca.export.formula import Formula
from streamkpca.export.views import BothViews, tabulate


def rarity_text(source: CText, *, prefix: str = "") -> str:
    """Return the text that reads the tables; exp and log are those of the library, or have names of this prefix."""
    text = files("streamkpca.export").joinpath("c_rarity.c").read_text(encoding="ascii").partition("\n\n")[2]
    return source.convert(text.replace("exp(", f"{prefix}exp(").replace("log(", f"{prefix}log("))


def write_rarity(source: CText, formula: Formula, views: BothViews) -> str:
    """Write the tables for a file of answers; return the text that reads them."""
    tables = tabulate(views, formula.mean_value(), single=source.dtype == "float")
    tables |= {"inverse_scales": 1.0 / views.relation.scale, "mean": views.relation.mean}
    for what, table in tables.items():
        source.table(what, table)
    return rarity_text(source)
