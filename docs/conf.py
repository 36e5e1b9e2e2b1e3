"""How Sphinx builds the manual; `.github/CONTRIBUTING.md` says how to run it.

The built site needs no network: formulas are MathML, and theme, search and icons come with it.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from hooks import RUNNABLE, URLS

import streamkpca

project = "streamkpca"
author = "The streamkpca developers"
project_copyright = author
version = release = streamkpca.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "hooks",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
nitpicky = True

# Pages

myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 4

# API

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "groupwise"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_use_plots = False
# Names in single backquotes become links where they are found; parameters and attributes of a model are not.
default_role = "py:obj"
nitpick_ignore_regex = [("py:obj", ".*")]

# Where the site is published, types of other projects become links; elsewhere the manual is built without a network.
_LISTS = {
    "python": ("https://docs.python.org/3", None),
    "numpy": ("https://numpy.org/doc/stable", None),
    "scipy": ("https://docs.scipy.org/doc/scipy", None),
    "sklearn": ("https://scikit-learn.org/stable", None),
}
intersphinx_mapping = _LISTS if "READTHEDOCS" in os.environ else {}

# Examples

# Sphinx runs no example unless it is called with `-D plot_gallery=1`; then their tables and all pictures are in it too.
plot_gallery = "False"
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": rf"/({'|'.join(RUNNABLE)})\.py$",
    "ignore_pattern": r"make_pictures\.py$",
    "image_scrapers": ("hooks.collect_pictures",),
    "reset_modules": (),
    "within_subsection_order": "hooks.RunnableFirst",
    "download_all_examples": False,
    "notebook_extensions": set(),
    "show_signature": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "remove_config_comments": True,
}

# HTML

html_theme = "pydata_sphinx_theme"
html_title = "streamkpca"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_context = {"default_mode": "auto"}
html_extra_path = ["llms.txt"]
html_css_files = ["manual.css"]
html_js_files = ["manual.js"]
html_baseurl = URLS["Documentation"]
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"
html_theme_options = {
    "logo": {"text": "streamkpca"},
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "collapse_navigation": True,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": [], "project": []}
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
linkcheck_anchors = False
