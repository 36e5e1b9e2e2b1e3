"""Draw the pictures of the README and of the manual, from rows that come with the examples.

Each example runs as a user runs it, and its picture is reduced: no wider than a page shows, and in as few colours
as it needs. The pictures are in the folder ``pictures`` beside this file.

Run it in a checkout (needs the extras ``cli``, ``plots``, ``river`` and ``sklearn``, Chromium, and a minute or two)::

    python examples/make_pictures.py
    python examples/make_pictures.py shapes_in_space denoise_digits
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
COLORS = 64
# Limits in pixels: thousands of dots compress badly.
WIDTH, WIDTHS = 1000, {"demo": 900, "shapes_in_space": 640}
# What a browser shows of the demonstration's report, one event chosen.
BROWSERS, SCREEN, CHOSEN = ("chromium", "chromium-browser", "google-chrome"), "1000,1000", 8


def names() -> list[str]:
    """Return the names of all pictures."""
    return re.findall(r"\(pictures/(\w+)\.png\)", (HERE / "PICTURES.md").read_text(encoding="utf-8"))


def command(name: str) -> list[str]:
    """Return the arguments of Python that draw a picture."""
    if name in ("demo", "report"):
        return ["-m", "streamkpca", "demo", "--out", "."]
    return [str(HERE / f"{name}.py")]


def photograph(folder: Path) -> None:
    """Replace the demonstration's picture by what a browser shows of its report."""
    (folder / "picture.png").unlink()
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"report: needs a browser, one of {', '.join(BROWSERS)}")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={SCREEN}"]
    address = f"{(folder / 'report.html').as_uri()}#{CHOSEN}"
    paths = [f"--user-data-dir={folder / 'profile'}", f"--screenshot={folder / 'report.png'}"]
    command = [browser, *options, *paths, "--virtual-time-budget=8000", address]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def draw(name: str, target: Path) -> None:
    """Draw a picture, scale it down and reduce its colours."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, *command(name)], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        if name == "report":
            photograph(Path(folder))
        (drawn,) = Path(folder).glob("*.png")
        with Image.open(drawn) as picture:
            whole = picture.convert("RGB")
    width = min(WIDTHS.get(name, WIDTH), whole.width)
    scaled = whole.resize((width, round(whole.height * width / whole.width)), Image.Resampling.LANCZOS)
    # Median cuts would drop rare colours, such as those of alarms.
    few = scaled.quantize(COLORS, method=Image.Quantize.MAXCOVERAGE, kmeans=4, dither=Image.Dither.NONE)
    few.save(target, optimize=True)


if __name__ == "__main__":
    if unknown := set(sys.argv[1:]) - set(names()):
        raise SystemExit(f"expected some of {', '.join(names())} but got {', '.join(sorted(unknown))}")
    for name in sys.argv[1:] or names():
        target = HERE / "pictures" / f"{name}.png"
        draw(name, target)
        print(f"{target.stat().st_size / 1024:6.1f} KiB  {target}")
