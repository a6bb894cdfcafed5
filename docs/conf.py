"""Sphinx's settings for the pages that docs/nb2md.py writes. `make docs` builds them."""

from typing import Any

# Imported before autodoc does it, which would do so as a type checker, and fail in the SDK.
import warm_integrations.core.models
import warm_integrations.openai_agents  # noqa: F401
from warm_integrations import __version__
from warm_integrations.core import WarmConfig

project = "warm-integrations"
author = "WritersLogic"
copyright = author  # no year, so that a build gives the same pages next year
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
default_role = "literal"  # docstrings write `names` as Markdown does
highlight_language = "none"  # a block without a language is output
myst_heading_anchors = 3

add_module_names = False
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


def describe_field(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Begin the description of a setting with its variable and its default, which only pydantic knows."""
    owner, _, field = name.rpartition(".")
    if owner == "warm_integrations.core.WarmConfig" and field in WarmConfig.model_fields:
        default = WarmConfig.model_fields[field].get_default(call_default_factory=True)
        variable = "" if field == "embedder" else f"``WARM_{field.upper()}``, "
        # What follows a colon on the first line would be read as "type: description".
        lines[:0] = [f"{variable}by default ``{default!r}``", ""]


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", describe_field, priority=400)
