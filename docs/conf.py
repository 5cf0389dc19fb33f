"""Sphinx configuration of the site that `make docs` builds. The site loads nothing from other servers."""

import re
from pathlib import Path

from pygments.lexer import RegexLexer, words
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Text
from sphinx.application import Sphinx
from sphinx.highlighting import lexers
from sphinx.util.logging import getLogger

project = html_title = "Fairlane"
extensions = ["myst_parser"]
myst_heading_anchors = 4
nitpicky = True
smartquotes = False  # it would turn the dashes of options into one
highlight_language = "text"
html_theme = "furo"
html_static_path = ["style"]
html_css_files = ["site.css"]
html_show_search_summary = False  # the text around a hit would be fetched, which a page opened from disk may not
html_copy_source = html_show_sourcelink = html_show_sphinx = html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1d5fd1", "color-brand-content": "#1d5fd1"},
    "dark_css_variables": {"color-brand-primary": "#7fb0ff", "color-brand-content": "#7fb0ff"},
}


class SpecLexer(RegexLexer):
    """The colours of a spec, as `editors/fairlane.tmLanguage.json` has them."""

    name = "fairlane"
    tokens = {  # noqa: RUF012
        "root": [
            (r"(//|#).*$", Comment),
            (r'"(\\.|[^"\\])*"', String),
            (
                words(("app", "queue", "command", "webhook", "schedule", "poller", "import"), suffix=r"(?=\s+[\w\".])"),
                Keyword,
            ),
            (words(("message_type", "input", "retention", "delivery", "verify_hmac"), suffix=r"(?=\s*\{)"), Keyword),
            (r"[A-Za-z_]\w*(?=\s*:)", Name.Attribute),
            (r"\d+((ms|[smhdw])\d*)*(\.\d+)?", Number),
            (words(("true", "false", "null"), suffix=r"\b"), Keyword.Constant),
            (r"==|!=|<=|>=|&&|\|\||[-+*/%!<>?:]", Operator),
            (r"[A-Za-z_][\w.]*", Name),
            (r"\s+|.", Text),
        ]
    }


def check_offline(app: Sphinx, failed: Exception | None) -> None:
    """Warn about pages that load a style, script, font or image from another site, which fails the build."""
    fetched = {
        ".html": re.compile(r"""<(?:link|script|img|iframe)\b[^>]*(?:href|src)=["'](?:https?:)?//[^"']+"""),
        ".css": re.compile(r"""(?:@import|url\()\s*["']?(?:https?:)?//[^"')]+"""),
    }
    for file in sorted(Path(app.outdir).rglob("*.*")):
        for found in fetched[file.suffix].findall(file.read_text(encoding="utf-8")) if file.suffix in fetched else ():
            getLogger(__name__).warning("%s fetches from elsewhere: %s", file.name, found)


def setup(app: Sphinx) -> None:
    lexers["fairlane"] = SpecLexer()
    app.connect("build-finished", check_offline)
