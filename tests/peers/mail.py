"""Real mail servers on loopback: mail-devel (aiosmtpd and pymap), and Dovecot behind LMTP."""

from __future__ import annotations

import contextlib
import grp
import imaplib
import os
import pwd
import shutil
import smtplib
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from pathlib import Path
from typing import Final

import msgspec

from tests.gateway.harness import free_port
from tests.helpers.certificates import authority
from tests.helpers.need import need

MAIL_DEVEL: Final = Path(__file__).parents[2] / ".venv" / "peers" / "bin" / "mail_devel"
UP_S: Final = 60.0
PASSWORD: Final = "correct-horse"

_DOVECOT: Final = shutil.which("dovecot", path=f"{os.defpath}:/usr/sbin:/sbin")
_parser: Final = BytesParser(policy=default)


class MailServer(msgspec.Struct, frozen=True):
    """A running one. Everybody has the same password. `ca` is who has signed its certificate."""

    imap_port: int
    smtp_port: int
    smtps_port: int
    ca: Path

    def send(self, mail: EmailMessage) -> None:
        """As the program of a person does; blocks."""
        with smtplib.SMTP("127.0.0.1", self.smtp_port) as smtp:
            smtp.login(str(mail["From"].addresses[0].addr_spec), PASSWORD)
            smtp.send_message(mail)

    def box(self, user: str) -> list[EmailMessage]:
        """What somebody got, oldest first; blocks."""
        with _opened(imaplib.IMAP4("127.0.0.1", self.imap_port), user) as box:
            return [_parser.parsebytes(raw) for raw in _bodies(box)]

    def unread(self, user: str) -> int:
        """How many mails somebody did not read yet; blocks."""
        with _opened(imaplib.IMAP4("127.0.0.1", self.imap_port), user) as box:
            return len(box.search(None, "UNSEEN")[1][0].split())


class Dovecot(msgspec.Struct, frozen=True):
    """A running one: mailboxes alone, encrypted from the start or by STARTTLS."""

    imap_port: int
    imaps_port: int
    lmtp_port: int
    ca: Path

    def deliver(self, mail: EmailMessage) -> None:
        """As the mail server before it does; blocks."""
        with smtplib.LMTP("127.0.0.1", self.lmtp_port) as lmtp:
            lmtp.send_message(mail)

    def unread(self, user: str) -> int:
        """How many mails somebody did not read yet; blocks."""
        context = ssl.create_default_context(cafile=self.ca)
        with _opened(imaplib.IMAP4_SSL("127.0.0.1", self.imaps_port, ssl_context=context), user) as box:
            return len(box.search(None, "UNSEEN")[1][0].split())


@contextlib.contextmanager
def mail_devel(home: Path) -> Iterator[MailServer]:
    """One that lives as long as this, with a mailbox for whoever is written to."""
    need("mail_devel", install="run `make peers`", found=MAIL_DEVEL.exists())
    ca = authority(home / "tls")
    ports = {name: free_port() for name in ("imap", "smtp", "smtps")}
    command = [
        str(MAIL_DEVEL), "--host", "127.0.0.1", "--multi-user", "--user", "shoal@pond.example", "--password", PASSWORD,
        "--no-http", "--auth-required", "--cert", str(ca.with_name("server.crt")), "--key",
        str(ca.with_name("server.key")), *(word for name in ports for word in (f"--{name}-port", str(ports[name]))),
    ]  # fmt: skip
    server = MailServer(ports["imap"], ports["smtp"], ports["smtps"], ca)
    with (home / "out.log").open("wb") as log, _running(command, home, log.fileno(), list(ports.values())):
        yield server


@contextlib.contextmanager
def dovecot() -> Iterator[Dovecot]:
    """One that lives as long as this; its folder has a short name, for its sockets."""
    lmtp = Path("/usr/lib/dovecot/lmtp").exists()
    need("dovecot", install="apt-get install dovecot-imapd dovecot-lmtpd", found=_DOVECOT is not None and lmtp)
    with tempfile.TemporaryDirectory(prefix="dovecot") as folder:
        home = Path(folder)
        ca = authority(home / "tls")
        server = Dovecot(free_port(), free_port(), free_port(), ca)
        config = home / "dovecot.conf"
        config.write_text(_config(home, server))
        command = [str(_DOVECOT), "-F", "-c", str(config)]
        with (home / "out.log").open("wb") as log:
            with _running(command, home, log.fileno(), [server.imaps_port, server.lmtp_port]):
                yield server


def _config(home: Path, server: Dovecot) -> str:
    """As root its processes are those of the package's users, else all of them ours."""
    root, mine = os.getuid() == 0, os.getuid() or 65534
    (home / "mail").mkdir()
    if root:
        home.chmod(0o755)
        os.chown(home / "mail", mine, mine)
    group = os.getgid() or mine
    name, named = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
    ours = (("default_internal_user", name), ("default_internal_group", named), ("default_login_user", name))
    users = "" if root else "".join(f"{key} = {value}\n" for key, value in ours)
    return f"""
base_dir = {home}/run
state_dir = {home}/state
log_path = {home}/dovecot.log
{users}protocols = imap lmtp
listen = 127.0.0.1
ssl = required
ssl_cert = <{server.ca.with_name("server.crt")}
ssl_key = <{server.ca.with_name("server.key")}
mail_location = maildir:{home}/mail/%u
first_valid_uid = 1
auth_username_format = %Lu
passdb {{
  driver = static
  args = password={PASSWORD}
}}
userdb {{
  driver = static
  args = uid={mine} gid={group} home={home}/mail/%u
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {server.imap_port}
  }}
  inet_listener imaps {{
    port = {server.imaps_port}
    ssl = yes
  }}
}}
service anvil {{
  chroot =
}}
service lmtp {{
  inet_listener lmtp {{
    address = 127.0.0.1
    port = {server.lmtp_port}
  }}
}}
"""


@contextlib.contextmanager
def _running(command: list[str], home: Path, log: int, ports: list[int]) -> Iterator[None]:
    process = subprocess.Popen(command, cwd=home, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait_for(lambda: all(map(_listens, ports)), process)
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(up: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end_at = time.monotonic() + UP_S
    while not up():
        assert process.poll() is None, f"{process.args!r} ended; out.log in its folder says why"
        assert time.monotonic() < end_at, f"{process.args!r} does not listen; out.log in its folder says why"
        time.sleep(0.1)


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def _opened(box: imaplib.IMAP4, user: str) -> Iterator[imaplib.IMAP4]:
    with box:
        box.login(user, PASSWORD)
        box.select("INBOX", readonly=True)
        yield box


def _bodies(box: imaplib.IMAP4) -> Iterator[bytes]:
    for number in box.search(None, "ALL")[1][0].split():
        for part in box.fetch(number.decode(), "(BODY.PEEK[])")[1]:
            if isinstance(part, tuple):
                yield part[1]
