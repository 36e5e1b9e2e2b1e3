"""Draw the pictures of the README and of the manual, from rows that come with the examples.

Each example runs as a user runs it, and its picture is reduced: no wider than a page shows, and in as few colours
as it needs. The pictures are in the folder ``pictures`` beside this file.

Run it in a checkout (needs the extras ``cli`` and ``sklearn``, and a minute or two)::

    python examples/make_pictures.py
    python examples/make_pictures.py shapes_in_space denoise_digits
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from PIL import Image
except ModuleNotFoundError as error:
    raise SystemExit(f'make_pictures.py needs {error.name}; pip install "streamkpca[cli,sklearn]"') from None


HERE = Path(__file__).parent
COLORS = 64
DEMO = ["-m", "streamkpca", "demo", "--out", "."]
README = HERE.parent / "README.md"


def first_code() -> str:
    """Return the code that the README begins with, with a picture of twice the pixels."""
    match = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert match is not None
    return match[1].replace('savefig("novelty.png")', 'savefig("novelty.png", dpi=150)')


# The command that draws each picture, the file that it writes, and its width limit in pixels: thousands of dots
# compress badly.
COMMANDS = {
    "choose_kernel": ([str(HERE / "choose_kernel.py")], "choose_kernel.png", 1000),
    "demo": (DEMO, "picture.png", 900),
    "denoise_digits": ([str(HERE / "denoise_digits.py")], "denoise_digits.png", 1000),
    "digits_stream": ([str(HERE / "digits_stream.py")], "digits_stream.png", 1000),
    "first_steps": (["-c", first_code()], "novelty.png", 1000),
    "greedy_bases": ([str(HERE / "greedy_bases.py")], "greedy_bases_energy.png", 1000),
    "river_pipeline": ([str(HERE / "river_pipeline.py")], "made_river.png", 1000),
    "shapes_in_space": ([str(HERE / "shapes_in_space.py")], "shapes_in_space.png", 640),
    "three_clusters": ([str(HERE / "three_clusters.py")], "three_clusters_error.png", 1000),
}


def make_small(source: Path, target: Path, width: int) -> None:
    """Scale a picture down and reduce its colours."""
    with Image.open(source) as picture:
        whole = picture.convert("RGB")
    height = round(whole.height * width / whole.width)
    scaled = whole.resize((width, height), Image.Resampling.LANCZOS) if whole.width > width else whole
    # Median cuts would drop rare colours, such as those of alarms.
    few = scaled.quantize(COLORS, method=Image.Quantize.MAXCOVERAGE, kmeans=4, dither=Image.Dither.NONE)
    few.save(target, optimize=True)


def main() -> None:
    """Run the examples."""
    parser = argparse.ArgumentParser(description="Draw the pictures of the README and the manual.")
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(COMMANDS)} (default: all)")
    parser.add_argument("--out", type=Path, default=HERE / "pictures", help="folder (default: pictures, here)")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(COMMANDS):
        parser.error(f"expected names of pictures but got {', '.join(sorted(unknown))}; known: {', '.join(COMMANDS)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or COMMANDS:
        command, drawn, width = COMMANDS[name]
        target = arguments.out / f"{name}.png"
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, *command], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            make_small(Path(folder, drawn), target, width)
        print(f"{target.stat().st_size / 1024:6.1f} KiB  {target}")


if __name__ == "__main__":
    main()
