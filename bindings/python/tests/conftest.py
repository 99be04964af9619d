"""Fixtures of all tests: the command of this source, and a cache of their own."""

import os
import pathlib
import subprocess

import kvdrive as kv
import kvdrive.testing
import pytest

ROOT = pathlib.Path(__file__).parents[3]


def pytest_configure(config):
    """An installed package brings its fixtures itself."""
    if not config.pluginmanager.is_registered(kvdrive.testing):
        config.pluginmanager.register(kvdrive.testing)


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
    """Each test has a folder of its own for remembered results."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="session")
def command():
    """The path of the command that was built from this source; KVDRIVE names another one."""
    built = [ROOT / "target" / profile / "kvdrive" for profile in ("debug", "release")]
    candidates = [os.environ["KVDRIVE"]] if "KVDRIVE" in os.environ else [path for path in built if path.exists()]
    for candidate in candidates:
        version = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=True).stdout
        if version.split()[-1] == f"({kv.revision})":
            return candidate
    pytest.skip(f"no command of revision {kv.revision} in target: cargo build; or set KVDRIVE")
