"""The command in tests leaves nothing in the home of whoever runs them."""

from pathlib import Path

from cli.reach.contexts import Context, context_path, state_folder
from tests.support.cli.command import Rollcall
from tests.support.cli.process import CommandLine
from tests.support.e2e.page_runs import MakeRun
from tests.support.pages import Page


def test_the_command_keeps_all_in_the_folder_of_the_test(tmp_path: Path) -> None:
    context = Context(registry="https://lab.example.com")
    for command in (Rollcall(tmp_path), CommandLine(tmp_path)):
        assert context_path(command.environment).is_relative_to(tmp_path)
        assert state_folder("rollouts", command.environment, "lab", context).is_relative_to(
            tmp_path
        )
        assert command.environment["HOME"] == str(tmp_path)


def test_the_commands_of_a_page_have_the_folder_as_their_home(tmp_path: Path) -> None:
    variables = "$HOME $XDG_CONFIG_HOME $XDG_STATE_HOME"
    text = f"# Page\n\n```sh\nprintf '%s\\n' {variables} > homes\n```\n"
    page = tmp_path / "page.md"
    page.write_text(text)

    MakeRun(tmp_path, {}).follow(Page(str(page)))

    for line in (tmp_path / "homes").read_text().splitlines():
        assert Path(line).is_relative_to(tmp_path), line
