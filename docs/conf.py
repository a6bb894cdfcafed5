"""Sphinx's settings for the pages that docs/nb2md.py writes. `make docs` builds them."""

# Imported before autodoc does it, which would do so as a type checker, and fail in the SDK.
import warm_integrations.core.models
import warm_integrations.openai_agents  # noqa: F401
from warm_integrations import __version__

project = "warm-integrations"
author = "WritersLogic"
copyright = author  # no year, so that a build gives the same pages next year
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
default_role = "literal"  # docstrings write `names` as Markdown does
highlight_language = "none"  # a block without a language is output
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 80

html_theme = "furo"
html_title = project
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
