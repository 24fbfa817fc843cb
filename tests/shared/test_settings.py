from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import SettingsError
from shared.settings import (
    NetworkSettings,
    ProxyUrl,
    Secret,
    Settings,
    is_named,
    load,
    load_few,
    read_section,
    redis_url,
    secrets_of,
    shown,
)


@pytest.fixture(autouse=True)
def _empty_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def toml(text: str, environ: dict[str, str] | None = None) -> Settings:
    """Settings from a ./shoal.toml with `text`."""
    Path("shoal.toml").write_text(text)
    return load(environ or {})


def problems(text: str = "", environ: dict[str, str] | None = None) -> list[str]:
    """The lines that the start ends with."""
    with pytest.raises(SettingsError) as caught:
        toml(text, environ)
    return str(caught.value).splitlines()


def key_of(settings: Settings, dotted: str) -> Any:
    """The value at `section.key`."""
    value: Any = settings
    for part in dotted.split("."):
        value = getattr(value, part)
    return value


# --- where values come from


def test_without_anything_the_defaults_of_the_contract_hold() -> None:
    """`make up` on a fresh machine needs no settings at all."""
    settings = load({})
    assert settings == Settings()
    assert settings.redis.url.reveal() == "embedded"
    assert settings.model.name == "demo"
    assert (settings.agent.max_rounds, settings.agent.subagent_rounds, settings.agent.memory_window) == (40, 15, 100)
    assert (settings.worker.turns, settings.worker.jobs, settings.worker.processes) == (100, 20, 1)
    assert (settings.worker.lease_s, settings.worker.drain_s) == (15, 55)
    assert (settings.web.host, settings.web.port, settings.web.token) == ("127.0.0.1", 8080, None)
    assert (settings.metrics.port_of("gateway"), settings.metrics.port_of("worker")) == (9464, 9465)
    assert (settings.inbox.cap, settings.inbox.sessions_cap) == (50, 100_000)
    assert settings.workspace.root == Path(".shoal/workspaces")


def test_the_file_in_the_working_directory_is_read() -> None:
    """./shoal.toml needs no variable that names it."""
    settings = toml('[worker]\nturns = 7\nlease_s = 3\n[model]\nname = "openai/gpt"\nfallbacks = ["a", "b"]\n')
    assert settings.worker.turns == 7
    assert settings.worker.lease_s == 3.0
    assert settings.model.fallbacks == ("a", "b")


def test_the_environment_wins_over_the_file() -> None:
    """Each key has its variable, so that a container changes one value without a new file."""
    settings = toml("[worker]\nturns = 7\njobs = 8\n", {"SHOAL_WORKER__TURNS": "9"})
    assert (settings.worker.turns, settings.worker.jobs) == (9, 8)


def test_the_credentials_of_a_store_come_in_pairs() -> None:
    """With one half alone the store would be asked by whatever the machine's role is."""
    keys = {"SHOAL_WORKSPACE__STORE_ACCESS_KEY": "a", "SHOAL_WORKSPACE__STORE_SECRET_KEY": "b"}
    workspace = load(keys).workspace
    assert (workspace.store_access_key, workspace.store_secret_key) == (Secret("a"), Secret("b"))
    for name, value in keys.items():
        with pytest.raises(SettingsError, match="belong together"):
            load({name: value})


def test_media_are_in_the_product_of_workspaces_unless_another_is_named() -> None:
    """And credentials of one are not sent to another."""
    keys = {"SHOAL_WORKSPACE__STORE_ACCESS_KEY": "a", "SHOAL_WORKSPACE__STORE_SECRET_KEY": "b"}
    workspace = keys | {"SHOAL_WORKSPACE__STORE_ENDPOINT": "http://one", "SHOAL_WORKSPACE__STORE_REGION": "r"}
    media = load(workspace | {"SHOAL_MEDIA__STORE": "s3://m/x"}).media
    assert (media.store, media.store_endpoint, media.store_region) == ("s3://m/x", "http://one", "r")
    assert (media.store_access_key, media.store_secret_key) == (Secret("a"), Secret("b"))
    other = load(workspace | {"SHOAL_MEDIA__STORE_ENDPOINT": "http://two"}).media
    assert (other.store_endpoint, other.store_region) == ("http://two", "")
    assert (other.store_access_key, other.store_secret_key) == (None, None)
    with pytest.raises(SettingsError, match=r"media\.store_access_key and media\.store_secret_key belong"):
        load({"SHOAL_MEDIA__STORE_SECRET_KEY": "b"})
    with pytest.raises(SettingsError, match=r"media\.store .* is not the address of a bucket"):
        load({"SHOAL_MEDIA__STORE": "/srv/media"})


def test_another_file_can_be_named() -> None:
    """By SHOAL_CONFIG, or by whoever calls."""
    Path("a.toml").write_text("[worker]\nturns = 1\n")
    Path("b.toml").write_text("[worker]\nturns = 2\n")
    assert load({"SHOAL_CONFIG": "a.toml"}).worker.turns == 1
    assert load({"SHOAL_CONFIG": "a.toml"}, path=Path("b.toml")).worker.turns == 2


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """load() without arguments is what a process calls."""
    monkeypatch.setenv("SHOAL_WORKER__TURNS", "3")
    assert load().worker.turns == 3


@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        ("SHOAL_WORKER__LEASE_S", "2.5", "worker.lease_s", 2.5),
        ("SHOAL_WORKER__DRAIN_S", "0", "worker.drain_s", 0.0),
        ("SHOAL_AGENT__GIVE_UP_ALONE_S", "90", "agent.give_up_alone_s", 90.0),
        ("SHOAL_TOOLS__EXEC", "false", "tools.exec", False),
        ("SHOAL_TOOLS__WEB", "1", "tools.web", True),
        ("SHOAL_METRICS__PORT", "0", "metrics.port", 0),
        ("SHOAL_HOOKS__BODY_S", "5", "hooks.body_s", 5.0),
        ("SHOAL_MODEL__FALLBACKS", "a/b, c/d,", "model.fallbacks", ("a/b", "c/d")),
        ("SHOAL_MODEL__API_KEY", "sk-123", "model.api_key", Secret("sk-123")),
        ("SHOAL_MODEL__FALLBACK_KEYS__GROQ", "gsk-1", "model.fallback_keys", {"groq": Secret("gsk-1")}),
        ("SHOAL_WEB__TOKENS__ALICE", "s3cret", "web.tokens", {"alice": Secret("s3cret")}),
        ("SHOAL_WEB__LOG_BYTES", "4096", "web.log_bytes", 4096),
        ("SHOAL_WEB__TOKEN", "123", "web.token", Secret("123")),
        ("SHOAL_WEB__TOKEN", "true", "web.token", Secret("true")),
        ("SHOAL_DATA__DIR", "/srv/shoal", "data.dir", Path("/srv/shoal")),
        ("SHOAL_AGENT__TIMEZONE", "Europe/Berlin", "agent.timezone", "Europe/Berlin"),
        ("SHOAL_WEB__ALLOWED_ORIGINS", "https://a.example", "web.allowed_origins", ("https://a.example",)),
        ("SHOAL_LOG__FORMAT", "json", "log.format", "json"),
        ("SHOAL_TRACING__ENDPOINT", "http://c:4318", "tracing.endpoint", "http://c:4318"),
        ("SHOAL_TRACING__SAMPLE", "0.1", "tracing.sample", 0.1),
        ("SHOAL_TRACING__CONTENT", "true", "tracing.content", True),
        ("SHOAL_TRACING__HEADERS__X-KEY", "k", "tracing.headers", {"x-key": Secret("k")}),
        ("SHOAL_MODEL__TRACEPARENT", "true", "model.traceparent", True),
        ("SHOAL_WORKSPACE__STORE_REGION", "eu-central-1", "workspace.store_region", "eu-central-1"),
        ("SHOAL_NETWORK__PROXY", "http://a:b@p:3128", "network.proxy", ProxyUrl("http://a:b@p:3128")),
        ("SHOAL_NETWORK__NO_PROXY", ".a.b, 10.0.0.0/8", "network.no_proxy", (".a.b", "10.0.0.0/8")),
        ("SHOAL_NETWORK__CA_FILE", "/etc/ca.pem", "network.ca_file", Path("/etc/ca.pem")),
        ("SHOAL_NETWORK__FROM_ENVIRONMENT", "true", "network.from_environment", True),
    ],
)
def test_a_variable_becomes_the_kind_of_its_key(variable: str, text: str, key: str, value: object) -> None:
    """The environment knows only text; each key knows what it wants."""
    assert key_of(load({variable: text}), key) == value


@given(st.integers(1, 10**6), st.floats(0.5, 300, allow_nan=False))
def test_every_number_in_range_survives_the_environment(turns: int, lease_s: float) -> None:
    """What is written is what is read, to the last digit."""
    settings = load({"SHOAL_WORKER__TURNS": str(turns), "SHOAL_WORKER__LEASE_S": repr(lease_s)})
    assert (settings.worker.turns, settings.worker.lease_s) == (turns, lease_s)


def test_an_empty_variable_counts_as_not_set() -> None:
    """Compose files hand on `${X:-}` as an empty variable."""
    assert toml("[worker]\nturns = 7\n", {"SHOAL_WORKER__TURNS": "", "SHOAL_WEB__TOKEN": ""}).worker.turns == 7


def test_variables_of_others_are_left_alone() -> None:
    """Kubernetes writes SHOAL_WEB_PORT=tcp://... into every pod next to a Service named shoal-web."""
    assert load({"SHOAL_WEB_PORT": "tcp://10.0.0.1:8080", "SHOAL_REQUIRE_ALL": "1", "HOME": "/", "A__B": "c"})


def test_workspaces_live_under_the_data_directory_unless_they_are_put_elsewhere() -> None:
    """One directory to move, one to back up."""
    assert load({"SHOAL_DATA__DIR": "/d"}).workspace.root == Path("/d/workspaces")
    assert load({"SHOAL_DATA__DIR": "/d", "SHOAL_WORKSPACE__ROOT": "/w"}).workspace.root == Path("/w")


# --- placeholders and files


def test_a_placeholder_in_the_file_is_read_from_the_environment() -> None:
    """A secret stays out of a file that is shared; a number may come this way too."""
    settings = toml(
        '[model]\napi_key = "${KEY}"\nname = "x-${A}-${B}"\n[web]\nport = "${PORT}"\n',
        {"KEY": "k", "A": "1", "B": "2", "PORT": "81"},
    )
    assert settings.model.api_key == Secret("k")
    assert settings.model.name == "x-1-2"
    assert settings.web.port == 81


def test_a_missing_placeholder_is_one_line_with_the_key_and_the_name() -> None:
    """The line says what to set; nothing else is said about that key."""
    assert problems('[model]\napi_key = "${KEY}"\n') == [
        "model.api_key: the environment has no 'KEY', which ${KEY} asks for; set it"
    ]


def test_a_doubled_dollar_is_a_plain_one() -> None:
    """A text can contain what looks like a placeholder."""
    assert toml('[model]\nname = "a$${B}"\n').model.name == "a${B}"


def test_a_variable_is_accepted_as_it_is() -> None:
    """A password with `${` in it is a password."""
    token = load({"SHOAL_WEB__TOKEN": "a${B}"}).web.token
    assert token is not None
    assert token.reveal() == "a${B}"


@pytest.mark.parametrize("content", ["s3cret", "s3cret\n", "s3cret\r\n"])
def test_a_secret_can_stand_in_a_file(content: str) -> None:
    """Docker and Kubernetes hand out secrets as files, with or without a newline at the end."""
    Path("secret").write_text(content)
    for settings in (
        toml('[web]\ntoken_file = "secret"\n[web.tokens]\nbob_file = "secret2"\n')
        if Path("secret2").write_text("b")
        else Settings(),
        load({"SHOAL_WEB__TOKEN_FILE": "secret", "SHOAL_WEB__TOKENS__BOB_FILE": "secret2"}),
    ):
        assert settings.web.token == Secret("s3cret")
        assert settings.web.tokens == {"bob": Secret("b")}


def test_a_file_from_the_environment_wins_over_a_value_from_the_settings_file() -> None:
    """The layers count, not the way of writing."""
    Path("secret").write_text("new")
    assert toml('[web]\ntoken = "old"\n', {"SHOAL_WEB__TOKEN_FILE": "secret"}).web.token == Secret("new")


def test_value_and_file_at_once_is_a_question_back() -> None:
    """Which of the two was meant is not for us to guess."""
    assert problems('[web]\ntoken = "a"\ntoken_file = "b"\n') == [
        "web.token and web.token_file are both set; keep one of them"
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "cannot be read: No such file or directory"), (b"", "is empty"), (b"\n", "is empty"), (b"\xff", "cannot")],
)
def test_a_secret_file_that_is_no_use_is_named(content: bytes | None, reason: str) -> None:
    """Key and file stand in the line."""
    if content is not None:
        Path("secret").write_bytes(content)
    (line,) = problems('[model]\napi_key_file = "secret"\n')
    assert line.startswith("model.api_key_file names 'secret', which ")
    assert reason in line


def test_a_channel_reads_files_only_for_what_sounds_like_a_secret() -> None:
    """`service_account_file` is a path that the channel itself wants."""
    Path("t").write_text("123:abc\n")
    channels = toml('[channels.telegram]\ntoken_file = "t"\nservice_account_file = "sa.json"\n').channels
    assert channels == {"telegram": {"token": Secret("123:abc"), "service_account_file": "sa.json"}}


# --- what is wrong


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[worker]\ntruns = 1\n", "worker.truns: there is no such setting; did you mean worker.turns?"),
        ("[wroker]\nturns = 1\n", "wroker.turns: there is no such setting; did you mean worker.turns?"),
        ("xyzzy = 1\n", "xyzzy: there is no such setting; remove it"),
        ("worker = 1\n", "worker is a section: write [worker] and its keys under it"),
        (
            "[channels]\ntelegram = 1\n",
            "channels.telegram is a section: write [channels.telegram] and its keys under it",
        ),
        ('[worker]\nturns = "7"\n', "worker.turns must be a whole number of at least 1, not '7'"),
        ("[worker]\nturns = 0\n", "worker.turns must be a whole number of at least 1, not 0"),
        ("[worker]\nturns = 1.5\n", "worker.turns must be a whole number of at least 1, not 1.5"),
        ("[worker]\nturns = true\n", "worker.turns must be a whole number of at least 1, not True"),
        ("[worker]\nlease_s = 0.4\n", "worker.lease_s must be a number from 0.5 to 300, not 0.4"),
        ("[worker]\nlease_s = nan\n", "worker.lease_s must be a number from 0.5 to 300, not nan"),
        ("[worker]\nlease_s = inf\n", "worker.lease_s must be a number from 0.5 to 300, not inf"),
        ("[worker]\ndrain_s = -1\n", "worker.drain_s must be a number from 0 to 3600, not -1"),
        ("[model]\ntotal_s = 0\n", "model.total_s must be a number over 0 of at most 86400, not 0"),
        ("[web]\nport = 65536\n", "web.port must be a whole number from 0 to 65535, not 65536"),
        ("[web]\nport = {}\n", "web.port must be a whole number from 0 to 65535, not a table"),
        ('[web]\ntokens = "x"\n', "web.tokens must be a table of texts"),
        ("[web.tokens]\nbob = 5\n", "web.tokens must be a table of texts"),
        ('[web]\ntoken = " "\n', "web.token must be text, not empty"),
        ('[model]\nname = ""\n', "model.name must be text, not empty, not ''"),
        ('[model]\nfallbacks = "a"\n', "model.fallbacks must be a list of texts, not 'a'"),
        ('[log]\nlevel = "loud"\n', "log.level must be one of debug, error, info, warning, not 'loud'"),
        ('[tools]\nexec = "yes"\n', "tools.exec must be true or false, not 'yes'"),
        ('[model]\napi_base = "host/v1"\n', "model.api_base is 'host/v1'; write a whole address"),
        ('[agent]\ntimezone = "Mars/Base"\n', "agent.timezone is 'Mars/Base', which is no timezone"),
        ('[redis]\nurl = "http://h"\n', "redis.url has the scheme 'http'; use redis://, rediss:// or unix://"),
        ('[redis]\nurl = "redis://:pw@:6379"\n', "redis.url names no host"),
        ('[redis]\nurl = "redis://h:x"\n', "redis.url is not an address"),
        ('[redis]\nurl = "unix://"\n', "redis.url names no socket"),
        ('[network]\nproxy = "proxy:3128"\n', "network.proxy is not a whole address; write one such as http://"),
        ('[network]\nproxy = "socks5://p:1"\n', "network.proxy is a SOCKS proxy, which only a channel can use"),
        ('[network]\nproxy = "https://p:1"\n', "network.proxy begins with 'https', and a proxy is reached by http"),
        ('[network]\nproxy = "http://p"\n', "network.proxy needs a host and a port"),
        ('[network]\nproxy = "http://p:1/x"\n', "network.proxy has something after its port"),
        ('[network]\nproxy = "http://u:a/b@p:1"\n', "network.proxy is not an address"),
        ('[network]\nno_proxy = ["http://a"]\n', "network.no_proxy has 'http://a'; write hosts and networks such as"),
        ('[network]\nno_proxy = ["10.0.0.0/33"]\n', "network.no_proxy has '10.0.0.0/33'; write hosts and networks"),
        ('[web]\nallowed_origins = ["a.example"]\n', "web.allowed_origins has 'a.example'; write scheme://host[:port]"),
        ('[web]\nallowed_origins = ["https://a/"]\n', "web.allowed_origins has 'https://a/'"),
        ('[web.tokens]\n"a b" = "x"\n', "web.tokens has the name 'a b'; use 1 to 64 letters"),
        ('[web]\ntoken = "x"\n[web.tokens]\nowner = "y"\n', "web.token and web.tokens.owner are both set"),
        ('[web.tokens]\na = "x"\nb = "x"\n', "web.tokens.b is the same secret as a"),
        ("[model]\ntotal_s = 1\n", "model.total_s is shorter than model.first_token_s"),
        ("worker = \n", "the settings file 'shoal.toml' is not valid TOML: "),
        ('[tracing]\nendpoint = "collector:4318"\n', "tracing.endpoint is 'collector:4318'; write a whole address"),
        ('[tracing]\nendpoint = "http://c:x"\n', "tracing.endpoint is not an address; write one such as"),
        ('[tracing]\nendpoint = "https://me:pw@c:4318"\n', "tracing.endpoint names a user or a password, which"),
        ('[tracing]\nheaders = { "a b" = "x" }\n', "tracing.headers has 'a b', which no HTTP request can carry"),
        ("[tracing]\nsample = 1.5\n", "tracing.sample must be a number from 0 to 1, not 1.5"),
    ],
)
def test_what_is_wrong_in_the_file_is_one_line_that_names_the_key(text: str, line: str) -> None:
    """The person reads the line and knows what to change."""
    (message,) = problems(text)
    assert message.startswith(line)


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        (
            {"SHOAL_WORKER__TRUNS": "1"},
            "SHOAL_WORKER__TRUNS: there is no setting 'worker.truns'; did you mean SHOAL_WORKER__TURNS?",
        ),
        ({"SHOAL_FOO__BAR": "1"}, "SHOAL_FOO__BAR: there is no setting 'foo.bar'; remove it"),
        ({"SHOAL_WORKER__": "1"}, "SHOAL_WORKER__: this is no setting; write SHOAL_<SECTION>__<KEY>"),
        ({"SHOAL___TURNS": "1"}, "SHOAL___TURNS: this is no setting; write SHOAL_<SECTION>__<KEY>"),
        (
            {"SHOAL_WORKER__TURNS": "1", "SHOAL_WORKER__TURNS__X": "1"},
            "SHOAL_WORKER__TURNS__X: this is no setting; write SHOAL_<SECTION>__<KEY>",
        ),
        (
            {"SHOAL_WORKER__TURNS": "many"},
            "worker.turns (from SHOAL_WORKER__TURNS) must be a whole number of at least 1, not 'many'",
        ),
        (
            {"SHOAL_WORKER__TURNS__X": "1"},
            "worker.turns must be a whole number of at least 1, not a table",
        ),
        ({"SHOAL_CONFIG": "no.toml"}, "the settings file 'no.toml' is not there; create it or change SHOAL_CONFIG"),
    ],
)
def test_what_is_wrong_in_the_environment_is_one_line_that_names_the_variable(
    environ: dict[str, str], line: str
) -> None:
    """A typing error in a variable is found, not ignored."""
    assert problems("", environ) == [line]


def test_all_problems_are_reported_at_once() -> None:
    """Nobody wants to start five times to find five mistakes."""
    message = problems(
        '[worker]\ntruns = 1\nturns = 0\n[model]\napi_key = "${KEY}"\n[nope]\na = 1\n', {"SHOAL_WEB__PORT": "x"}
    )
    assert len(message) == 5
    assert {line.split()[0].rstrip(":") for line in message} == {
        "worker.truns",
        "worker.turns",
        "model.api_key",
        "nope.a",
        "web.port",
    }


# --- variables that other programs read, too


THEIRS = {"HTTPS_PROXY": "proxy:3128", "no_proxy": "a.example, 10.0.0.0/8", "SSL_CERT_FILE": "/etc/ca.pem"}


def test_standard_variables_are_ignored_unless_the_operator_says_so() -> None:
    """An environment is often written by somebody who thought of other programs."""
    assert load(THEIRS).network == NetworkSettings()
    network = load({**THEIRS, "SHOAL_NETWORK__FROM_ENVIRONMENT": "true"}).network
    assert network.proxy == ProxyUrl("http://proxy:3128")
    assert network.no_proxy == ("localhost", "127.0.0.0/8", "::1", "a.example", "10.0.0.0/8")
    assert network.ca_file == Path("/etc/ca.pem")


def test_what_is_set_here_wins_over_standard_variables() -> None:
    """They fill in what is missing."""
    own = '[network]\nfrom_environment = true\nproxy = "http://own:1"\nno_proxy = ["b.example"]\nca_file = "own.pem"\n'
    network = toml(own, THEIRS).network
    assert (network.proxy, network.no_proxy) == (ProxyUrl("http://own:1"), ("b.example",))
    assert network.ca_file == Path("own.pem")


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        (
            {"HTTP_PROXY": "http://a:1", "HTTPS_PROXY": "http://b:1"},
            "HTTP_PROXY and HTTPS_PROXY name different proxies",
        ),
        ({"all_proxy": "socks5://a:1"}, "network.proxy (from the environment) is a SOCKS proxy"),
        ({"NO_PROXY": "http://a"}, "network.no_proxy (from NO_PROXY) has 'http://a'"),
    ],
)
def test_a_standard_variable_that_is_wrong_is_one_line(environ: dict[str, str], line: str) -> None:
    """It would otherwise be every call that fails."""
    (message,) = problems("[network]\nfrom_environment = true\n", environ)
    assert message.startswith(line)


# --- secrets


CANARY = "canary-5f3a"


def with_canaries() -> Settings:
    """Settings with the canary at every place where a secret can be."""
    return toml(
        f'[redis]\nurl = "redis://user:{CANARY}@h:6379/1?password={CANARY}"\n[model]\napi_key = "{CANARY}"\n'
        f'[model.fallback_keys]\ngroq = "{CANARY}-3"\n[web]\ntoken = "{CANARY}-1"\n[web.tokens]\nbob = "{CANARY}-2"\n'
        f'[channels.x]\nbot_token = "{CANARY}"\nname = "seen"\n[channels.x.mail]\npassword = "{CANARY}"\n'
        f'[network]\nproxy = "http://me:{CANARY}@p:1"\n[channels.y]\nproxy = "socks5://me:{CANARY}@p:1"\n'
    )


def test_settings_of_a_platform_from_the_environment_are_shown() -> None:
    """Their kinds are known to the platform alone, which has not read them."""
    settings = load({"SHOAL_CHANNELS__X__NAME": "seen", "SHOAL_CHANNELS__X__TOKEN": CANARY}, path=Path("/dev/null"))
    assert shown(settings)["channels"]["x"] == {"name": "seen", "token": "***"}


def test_no_way_of_printing_settings_shows_a_secret() -> None:
    """repr, str, format and `shoal config show` all print the mask, and the rest stays readable."""
    settings = with_canaries()
    for text in (
        repr(settings),
        str(settings),
        f"{settings.model.api_key} {settings.redis.url}",
        repr(shown(settings)),
    ):
        assert CANARY not in text
        assert "***" in text
    assert shown(settings)["redis"]["url"] == "redis://user:***@h:6379/1?password=***"
    assert shown(settings)["channels"]["x"]["name"] == "seen"
    assert shown(settings)["network"]["proxy"] == "http://me:***@p:1"
    assert shown(settings)["channels"]["y"]["proxy"] == "socks5://me:***@p:1"
    for unchecked in (f"me:{CANARY}@p:1", f"http://me:a/{CANARY}@p:1", f"http://{CANARY}@p:1"):
        assert str(ProxyUrl(unchecked)) == "***"


def test_a_wrong_secret_is_not_repeated_in_the_complaint() -> None:
    """The line goes to a log."""
    message = problems(
        f'[redis]\nurl = "http://:{CANARY}@h"\n[web]\ntokens = "{CANARY}"\ntoken = ["{CANARY}"]\n'
        f'[web2]\ntoken = "{CANARY}"\n'
    )
    assert len(message) == 4
    assert CANARY not in "\n".join(message)


def test_a_key_that_is_set_to_its_default_is_named_all_the_same(tmp_path: Path) -> None:
    """0 tokens a day is a choice; where nobody made one, `make up` makes it."""
    file = tmp_path / "shoal.toml"
    file.write_text("[budget]\ntokens_per_day = 0\n")
    assert is_named("budget", "tokens_per_day", {"SHOAL_CONFIG": str(file)})
    assert not is_named("budget", "usd_per_day", {"SHOAL_CONFIG": str(file)})
    file.write_text("")
    assert is_named("budget", "tokens_per_day", {"SHOAL_CONFIG": str(file), "SHOAL_BUDGET__TOKENS_PER_DAY": "0"})
    assert not is_named("budget", "tokens_per_day", {"SHOAL_CONFIG": str(file)})


def test_the_log_can_be_given_every_secret() -> None:
    """Whatever the mask would hide, secrets_of() hands out, for the redaction of logs, with a name to show."""
    values, names = zip(*secrets_of(with_canaries()), strict=True)
    assert set(values) == {CANARY, f"{CANARY}-1", f"{CANARY}-2", f"{CANARY}-3"}
    assert {"redis.url", "model.api_key"} <= set(names)
    assert CANARY not in "\n".join(names)


def test_a_secret_is_compared_by_its_value() -> None:
    """Equal secrets are equal; a secret is no string."""
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1


# --- reading on


def test_the_embedded_address_is_read_from_the_data_directory() -> None:
    """The embedded server writes down where it is."""
    settings = load({"SHOAL_DATA__DIR": "d"})
    with pytest.raises(
        SettingsError, match=r"no embedded Valkey is running here \(no 'd/valkey.url'\): start `shoal up`"
    ):
        redis_url(settings)
    Path("d").mkdir()
    Path("d/valkey.url").write_text("redis://:x@127.0.0.1:1/0\n")
    assert redis_url(settings) == "redis://:x@127.0.0.1:1/0"


def test_an_address_that_was_set_is_used_as_it_is() -> None:
    """Any Redis will do."""
    url = "rediss://u:p@h:6380/2"
    assert redis_url(load({"SHOAL_REDIS__URL": url})) == url


class ChannelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a channel's own settings look like."""

    token: Secret
    allow_from: tuple[str, ...] = ()
    poll_s: float = 1.0


def test_a_channel_reads_its_own_table_with_the_same_care() -> None:
    """Text from the environment becomes the kind the channel wants; its mistakes read like all others."""
    environ = {
        "SHOAL_CHANNELS__CHIRP__TOKEN": "t",
        "SHOAL_CHANNELS__CHIRP__ALLOW_FROM": "1,2",
        "SHOAL_CHANNELS__CHIRP__POLL_S": "0.5",
    }
    table = load(environ).channels["chirp"]
    assert read_section(ChannelSettings, table, "channels.chirp") == ChannelSettings(Secret("t"), ("1", "2"), 0.5)
    with pytest.raises(SettingsError) as caught:
        read_section(ChannelSettings, {"tokn": "t", "poll_s": "x"}, "channels.chirp")
    assert str(caught.value).splitlines() == [
        "channels.chirp.tokn: there is no such setting; did you mean channels.chirp.token?",
        "channels.chirp.poll_s must be a number, not 'x'",
        "channels.chirp.token is missing; it must be text, not empty",
    ]


def test_a_table_of_tables_is_read_like_a_section(tmp_path: Path) -> None:
    """Presets: each key is checked by name, secrets come from files, and the environment overrides single keys."""
    secret = tmp_path / "key"
    secret.write_text("sk-of-the-preset\n")
    text = f'[model.presets.fast]\nname = "openai/x"\napi_key_file = "{secret}"\n'
    settings = toml(text, {"SHOAL_MODEL__PRESETS__FAST__MAX_TOKENS": "12"})
    preset = settings.model.presets["fast"]
    assert (preset.name, preset.max_tokens) == ("openai/x", 12)
    assert ("sk-of-the-preset", "model.presets.fast.api_key") in secrets_of(settings)


def test_what_is_wrong_in_a_table_of_tables_is_named_with_its_whole_key() -> None:
    """Wrong kinds, unknown and missing keys, and a value where a table belongs: each has a line of its own."""
    assert problems('[model.presets]\nother = 1\n[model.presets.fast]\nmax_tokens = "x"\nnam = 3\n') == [
        "model.presets.other must be a table, not 1",
        "model.presets.fast.max_tokens must be a whole number of at least 1, not 'x'",
        "model.presets.fast.nam: there is no such setting; did you mean model.presets.fast.name?",
        "model.presets.fast.name is missing; it must be text, not empty",
    ]


def test_a_preset_cannot_have_the_name_of_the_usual_model() -> None:
    """`/model default` goes back to the usual model, so a preset of that name could never be chosen."""
    [line] = problems('[model.presets.Default]\nname = "openai/x"\n')
    assert line.startswith("model.presets has the name 'Default'")


def test_a_table_of_an_mcp_server_is_read_and_its_secrets_are_secrets(tmp_path: Path) -> None:
    """Variables and headers come from the file, from other files and from the environment, and are shown to nobody."""
    (tmp_path / "token").write_text("sk-of-a-file\n")
    text = (
        '[mcp.files]\ncommand = ["serve", "-x"]\n'
        f'env = {{ KEY = "sk-of-toml", TOKEN_file = "{tmp_path}/token" }}\n'
        '[mcp.far]\nurl = "https://host/mcp"\n'
    )
    environ = {"SHOAL_MCP__FAR__HEADERS__AUTHORIZATION": "sk-of-environ", "SHOAL_MCP__THIRD__COMMAND": "serve, -y"}
    settings = toml(text, environ)
    assert settings.mcp["files"].command == ("serve", "-x")
    assert settings.mcp["third"].command == ("serve", "-y")
    assert settings.mcp["files"].env["TOKEN"].reveal() == "sk-of-a-file"
    assert {"sk-of-toml", "sk-of-a-file", "sk-of-environ"} <= {value for value, _ in secrets_of(settings)}
    assert "sk-of" not in str(shown(settings))
    assert toml("").mcp == {}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", "mcp.x.command and mcp.x.url are both missing; set one of them"),
        ('command = ["a"]\nurl = "https://h/"', "mcp.x.command and mcp.x.url are both set; keep one of them"),
        ('command = [" "]', "mcp.x.command begins with an empty text"),
        ('url = "h/mcp"', "mcp.x.url is no whole address"),
        ('url = "https://me:secret@h/mcp"', "mcp.x.url is no whole address"),
        ('url = "https://h/"\nenv = { A = "b" }', "mcp.x.env is for a server with a command; remove it"),
        ('url = "https://h/"\ncwd = "/"', "mcp.x.cwd is for a server with a command; remove it"),
        ('command = ["a"]\nheaders = { A = "b" }', "mcp.x.headers is for a server with a url; remove it"),
        ('command = ["a"]\nenv = { "A B" = "b" }', "mcp.x.env has 'A B', which no process can be given"),
        ('url = "https://h/"\nheaders = { "A B" = "b" }', "mcp.x.headers has 'A B', which no HTTP request can carry"),
        ('command = ["a"]\nsafety = "safe"', "mcp.x.safety must be one of idempotent, read_only, unsafe, not 'safe'"),
        ('command = ["a"]\ntimeout = 1', "mcp.x.timeout: there is no such setting; did you mean mcp.x.timeout_s?"),
    ],
)
def test_what_is_wrong_with_an_mcp_server_is_named(table: str, message: str) -> None:
    """One line, with the key."""
    [line] = problems(f"[mcp.x]\n{table}\n")
    assert line.startswith(message)


def test_a_name_of_an_mcp_server_is_part_of_the_names_of_its_tools() -> None:
    """So it is short and plain, and has no underscore: two servers never share a name."""
    for name in ("A", "a_b", "-a", "x" * 25):
        [line] = problems(f'[mcp.{name}]\ncommand = ["a"]\n')
        assert f"{name!r} is no name for a server" in line
    assert problems("[mcp]\nx = 1\n") == ["mcp.x must be a table, not 1"]


def test_a_few_sections_come_from_the_environment_alone() -> None:
    """For a process that shall hold no secret: no file is opened, and what others are told is not looked at."""
    Path("shoal.toml").write_text("[runner]\ncommands = 3\n")
    environ = {
        "SHOAL_RUNNER__WORKER_UID": "1000",
        "SHOAL_DATA__DIR": "/data",
        "SHOAL_MODEL__API_KEY_FILE": "/not/there",
        "SHOAL_WEB__PORT": "no port",
        "SHOAL_CONFIG": "/not/there/either",
    }
    settings = load_few(("runner", "workspace", "data"), environ)
    assert (settings.runner.worker_uid, settings.runner.commands) == (1000, 8)
    assert settings.workspace.root == Path("/data/workspaces")
    assert settings.model.api_key is None
    with pytest.raises(SettingsError, match=r"runner\.commands"):
        load_few(("runner",), {"SHOAL_RUNNER__COMMANDS": "0"})
    with pytest.raises(SettingsError, match=r"runner\.workers"):
        load_few(("runner",), {"SHOAL_RUNNER__WORKERS": "1"})


def test_voice_needs_an_address_and_a_plain_language() -> None:
    """Both are said before the first recording comes."""
    with pytest.raises(SettingsError, match=r"set voice\.api_base, such as https://api\.openai\.com/v1"):
        load({"SHOAL_VOICE__MODEL": "whisper-1"})
    assert load({"SHOAL_VOICE__MODEL": "w", "SHOAL_MODEL__API_BASE": "http://m/v1"}).voice.model == "w"
    assert load({"SHOAL_VOICE__MODEL": "w", "SHOAL_VOICE__API_BASE": "http://v/v1"}).voice.file_mb == 25
    for language in ("", "en", "pt-BR", "yue"):
        assert load({"SHOAL_VOICE__LANGUAGE": language}).voice.language == language
    for language in ("English", "e", "en_US", "en\r\n"):
        with pytest.raises(SettingsError, match=r"voice\.language is .*; write a code such as en"):
            load({"SHOAL_VOICE__LANGUAGE": language})
    with pytest.raises(SettingsError, match=r"voice\.api_base .* is 'ftp:"):
        load({"SHOAL_VOICE__API_BASE": "ftp://v"})


def test_files_of_messages_live_under_the_data_directory_unless_they_are_put_elsewhere() -> None:
    """As workspaces do."""
    assert load({"SHOAL_DATA__DIR": "/d"}).media.dir == Path("/d/media")
    assert load({"SHOAL_DATA__DIR": "/d", "SHOAL_MEDIA__DIR": "/m"}).media.dir == Path("/m")
