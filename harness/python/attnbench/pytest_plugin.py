"""For pytest: a failed `attnbench.check` shows what the program printed, with its clues and the line that repeats the
case, in place of a traceback through this package. An installed package registers it; else: -p attnbench.pytest_plugin"""
import pytest

from ._api import CheckFailed


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if call.excinfo is not None and call.excinfo.errisinstance(CheckFailed):
        place = call.excinfo.traceback.filter(lambda entry: str(entry.path) == str(item.path))[-1:]
        where = f"{place[0].path}:{place[0].lineno + 1}: " if place else ""
        report.longrepr = f"{where}{call.excinfo.value}"
