"""The site: the Markdown pages of this folder, and the reference from docstrings."""

import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

import mixvi  # noqa: E402

project = "mixvi"
author = "the mixvi developers"
copyright = author
release = version = mixvi.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.linkcode",
    "mathml",
    "pages",
    "source_pages",
]
exclude_patterns = ["_build", "_ext"]
suppress_warnings = ["myst.header"]  # tables of measurements begin at any level

myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

# Docstrings are written as they are read: `name` is code, and a link where it is a name of ours.
default_role = "py:obj"
nitpicky = True
nitpick_ignore_regex = [("py:obj", ".*"), ("py:class", ".*")]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "mixvi"
html_static_path = ["_static"]
html_css_files = ["house.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {
        "color-brand-primary": "#1f5fa8",
        "color-brand-content": "#1f5fa8",
        "font-stack": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7db3f0",
        "color-brand-content": "#7db3f0",
    },
}

from source_pages import place_of  # noqa: E402


def linkcode_resolve(domain, info):
    """The page with the source of a documented name; the reference lies one folder down."""
    return place_of(info["module"], info["fullname"])
