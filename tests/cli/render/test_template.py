"""Templates: what they may use, what they may not, and where a mistake in one is."""

from pathlib import Path

import pytest

from cli.render.file import RenderError, TemplateNode
from cli.render.template import NodeTemplate

NODES = [
    TemplateNode(
        hostname="h1", address="192.0.2.1", labels=["service:web"], kv={"port": "81"}, stale=False
    ),
    TemplateNode(
        hostname="h2", address="2001:db8::2", labels=[], kv={"port": "8 2;\nevil"}, stale=True
    ),
]


def template(folder: Path, text: str) -> NodeTemplate:
    """Return a template with a text."""
    file = folder / "t.j2"
    file.write_text(text)
    return NodeTemplate(file)


def test_a_template_makes_lines_of_nodes(tmp_path: Path) -> None:
    (tmp_path / "line.j2").write_text("server {{ node.hostname }}:{{ node.kv.port }};")
    text = """# made by rollcall
{% for node in nodes if not node.stale and node.kv.port is word %}
  {% include "line.j2" %}

{% endfor %}
end
"""
    made = template(tmp_path, text).render(NODES)

    assert made == "# made by rollcall\nserver h1:81;\nend\n"


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("a\n{% for %}", r"t\.j2:2: "),
        ("{% include 'none.j2' %}", r"t\.j2:1: no template none\.j2 beside it"),
        ("a\nb\n{{ nodes[0].kv.none }}", r"t\.j2:3: .*has no attribute 'none'"),
        ("{{ hosts }}", r"t\.j2:1: 'hosts' is undefined"),
        ("\n{{ ''.__class__.__mro__ }}", r"t\.j2:2: .*unsafe"),
        ("{{ nodes[0].values.__globals__ }}", r"t\.j2:1: .*unsafe"),
        ("{{ nodes.append(1) }}", r"t\.j2:1: .*unsafe"),
        ("{{ nodes[0].kv.update(a=1) }}", r"t\.j2:1: .*unsafe"),
        ("{% include '../outside.j2' %}", r"t\.j2:1: no template \.\./outside\.j2"),
        ("{{ 1 / 0 }}", r"t\.j2:1: ZeroDivisionError"),
        ("{{ nodes[0].kv.port + 1 }}", r"t\.j2:1: TypeError"),
        ("{% for n in range(1000000) %}{% endfor %}", r"t\.j2:1: OverflowError"),
    ],
)
def test_a_mistake_in_a_template_is_reported_with_its_line(
    text: str, mistake: str, tmp_path: Path
) -> None:
    (tmp_path / "outside.j2").write_text("secret")
    folder = tmp_path / "templates"
    folder.mkdir()

    with pytest.raises(RenderError, match=mistake):
        template(folder, text).render(NODES)


def test_a_template_that_cannot_be_read_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match=r"none\.j2"):
        NodeTemplate(tmp_path / "none.j2")
    (tmp_path / "t.j2").write_bytes(b"\xff\xfe")
    with pytest.raises(RenderError, match=r"t\.j2 cannot be read"):
        NodeTemplate(tmp_path / "t.j2")


def test_a_template_that_was_changed_is_read_again(tmp_path: Path) -> None:
    made = template(tmp_path, "old")
    assert made.render(NODES) == "old"

    (tmp_path / "new").write_text("new")
    (tmp_path / "new").replace(tmp_path / "t.j2")

    assert made.render(NODES) == "new"


def test_text_of_nodes_is_escaped_in_templates_of_html(tmp_path: Path) -> None:
    def rendered(name: str) -> str:
        (tmp_path / name).write_text("{{ '<script>' }}")
        return NodeTemplate(tmp_path / name).render([])

    for name in ("page.html.j2", "page.html", "fleet.v2.html.j2", "fleet.v2.xml"):
        assert rendered(name) == "&lt;script&gt;"
    for name in ("page.conf.j2", "fleet.html.conf.j2"):
        assert rendered(name) == "<script>"
