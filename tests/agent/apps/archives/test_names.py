"""Which entries of a tar are an app's data, and which are rejected."""

import tarfile

import pytest

from agent.apps.archives import names
from agent.apps.archives.names import InwardNames, OutwardNames
from agent.apps.errors import InvalidData
from tests.support.agent.tars import member

PATHS = ("/srv", "/srv/uploads", "/var/lib/app")


def inward() -> InwardNames:
    return InwardNames(PATHS, root="/data")


def directory(name: str) -> tarfile.TarInfo:
    return member(name, type=tarfile.DIRTYPE)


def link(name: str, target: str) -> tarfile.TarInfo:
    return member(name, type=tarfile.SYMTYPE, linkname=target)


def hard_link(name: str, target: str) -> tarfile.TarInfo:
    return member(name, type=tarfile.LNKTYPE, linkname=target)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("srv/a", "data/0/a"),
        ("./srv/a", "data/0/a"),
        ("srv//./b/c", "data/0/b/c"),
        ("srv/uploads/x", "data/1/x"),
        ("srv/uploads2", "data/0/uploads2"),
        ("var/lib/app/..x", "data/2/..x"),
    ],
)
def test_an_entry_goes_to_the_volume_of_the_longest_path(name: str, place: str) -> None:
    chosen = inward().choose(member(name))

    assert chosen is not None
    assert chosen.name == place


def test_directories_above_the_paths_are_left_out() -> None:
    choosing = inward()

    assert [choosing.choose(directory(name)) for name in (".", "var", "var/lib/")] == [None] * 3
    assert choosing.found == set()


def test_the_paths_that_the_tar_has_are_known() -> None:
    choosing = inward()
    for entry in (directory("srv"), member("var/lib/app/x")):
        choosing.choose(entry)

    assert choosing.found == {"/srv", "/var/lib/app"}


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (member("/srv/a"), "leads out"),
        (member("srv/../etc/passwd"), "leads out"),
        (member("../srv/a"), "leads out"),
        (member("srv/a/.."), "leads out"),
        (member("etc/passwd"), "in no path"),
        (member("srvx"), "in no path"),
        (directory("opt"), "in no path"),
        (member("var"), "in no path"),
        (member("srv"), "has to be a directory"),
        (link("srv/uploads", "/etc"), "has to be a directory"),
        (member("srv/null", type=tarfile.CHRTYPE), "device"),
        (member("srv/disk", type=tarfile.BLKTYPE), "device"),
        (hard_link("srv/shadow", "/etc/shadow"), "leads out"),
        (hard_link("srv/shadow", "../etc/shadow"), "leads out"),
        (hard_link("srv/shadow", "etc/shadow"), "not in /srv"),
        (hard_link("srv/a", "srv/uploads/a"), "not in /srv"),
        (hard_link("srv/a", "srv"), "not in /srv"),
    ],
)
def test_what_is_not_in_the_apps_paths_is_rejected(entry: tarfile.TarInfo, reason: str) -> None:
    with pytest.raises(InvalidData, match=reason):
        inward().choose(entry)


@pytest.mark.parametrize("target", ["a", "../../etc", "/etc/passwd", "/srv/a"])
def test_a_symbolic_link_stays_as_it_is(target: str) -> None:
    chosen = inward().choose(link("srv/link", target))

    assert chosen is not None
    assert (chosen.name, chosen.linkname) == ("data/0/link", target)


def test_a_hard_link_names_its_target_in_the_volume() -> None:
    chosen = inward().choose(hard_link("srv/uploads/b", "./srv/uploads/a"))

    assert chosen is not None
    assert (chosen.name, chosen.linkname) == ("data/1/b", "data/1/a")


@pytest.mark.parametrize(
    "entry",
    [member("srv/out/passwd"), directory("srv/out/d/e"), hard_link("srv/b", "srv/out/passwd")],
)
def test_nothing_is_written_or_linked_through_a_link_of_the_tar(entry: tarfile.TarInfo) -> None:
    choosing = inward()
    choosing.choose(link("srv/out", "/etc"))

    with pytest.raises(InvalidData, match="behind"):
        choosing.choose(entry)


def test_a_link_hides_nothing_that_lies_in_another_path() -> None:
    choosing = inward()
    choosing.choose(link("var/lib/app/uploads", "/etc"))
    choosing.choose(link("srv/lib", "/etc"))

    for name in ("srv/uploads/x", "var/lib/app/lib/x"):
        assert choosing.choose(member(name)) is not None


def test_a_hard_link_to_a_symbolic_link_is_one_too() -> None:
    choosing = inward()
    for entry in (
        link("srv/out", "/data/1"),
        hard_link("srv/again", "srv/out"),
        member("srv/out"),
        hard_link("srv/third", "srv/again"),
    ):
        assert choosing.choose(entry) is not None

    for name in ("srv/again/x", "srv/third/x"):
        with pytest.raises(InvalidData, match="behind"):
            choosing.choose(member(name))
    assert choosing.choose(hard_link("srv/file", "srv/out")) is not None
    assert choosing.choose(member("srv/other", linkname="x")) is not None


def test_a_directory_may_take_the_place_of_a_link() -> None:
    choosing = inward()
    for entry in (link("srv/out", "/etc"), directory("srv/out"), member("srv/out/passwd")):
        assert choosing.choose(entry) is not None


@pytest.mark.slow
def test_the_links_of_a_tar_are_bounded() -> None:
    choosing = inward()
    for number in range(names.MOST_LINKS):
        choosing.choose(link(f"srv/{number}", "x"))

    with pytest.raises(InvalidData, match="symbolic links"):
        choosing.choose(link("srv/last", "x"))


def test_outward_an_entry_has_the_name_of_its_path() -> None:
    choosing = OutwardNames("/var/lib/app", PATHS)
    chosen = [choosing.choose(each) for each in (directory("./"), hard_link("./b", "./a"))]

    assert [(each.name, each.linkname) for each in chosen if each] == [
        ("var/lib/app", ""),
        ("var/lib/app/b", "var/lib/app/a"),
    ]


def test_outward_devices_and_what_lies_under_another_path_are_left_out() -> None:
    choosing = OutwardNames("/srv", PATHS)
    left_out = (
        directory("./uploads"),
        member("./uploads/hidden"),
        member("./null", type=tarfile.CHRTYPE),
    )

    assert [choosing.choose(each) for each in left_out] == [None] * 3
    assert choosing.choose(member("./uploads2")) is not None
