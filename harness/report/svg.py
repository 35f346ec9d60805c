"""Writing SVG safely: every attribute and text is escaped, so that no name in a history can end up as markup."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

Child = str | Markup | None


def tag(name: str, *children: Child, **attributes: str | float | int | bool | None) -> Markup:
    """One element. `class_` and `data_a` become `class` and `data-a`; None leaves the attribute out.

    >>> tag("text", "<b>", x=1.5, class_="label")
    Markup('<text x="1.5" class="label">&lt;b&gt;</text>')
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None:
            continue
        parts.append(f' {key.rstrip("_").replace("_", "-")}="{escape(number(value))}"')
    inner = "".join(escape(child) for child in children if child is not None)
    parts.append(f">{inner}</{name}>" if inner else "/>")
    return Markup("".join(parts))


def number(value: str | float | int | bool) -> str:
    """A number without needless digits; text as it is."""
    if isinstance(value, float):
        return f"{value:.6g}" if value == value else "0"
    return str(value)


def join(elements: Iterable[Markup]) -> Markup:
    """Elements one after the other."""
    return Markup("\n").join(elements)
