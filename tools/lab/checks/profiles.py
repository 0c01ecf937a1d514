"""Forms of AWS profiles, and whom a listing asks by each of them: with which key, in which region.

The AWS command line and inrush run with the same files and variables. Two servers of loopback write
down who asks them for what, as STS and as S3; a third is the proxy, and writes down the hosts of
AWS that are meant, which nobody reaches.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

from lab import client, install, process

RUN_SECONDS = 60.0
REFUSED = ("refused",)
ROLE = "arn:aws:iam::111122223333:role/train"
LISTING = ("<ListBucketResult><Name>lab</Name><Prefix></Prefix><KeyCount>1</KeyCount><MaxKeys>1000"
           "</MaxKeys><IsTruncated>false</IsTruncated><Contents><Key>a</Key><LastModified>"
           "2024-01-01T00:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag><Size>1</Size>"
           "<StorageClass>STANDARD</StorageClass></Contents></ListBucketResult>")
ASSUMED = ("<{0}Response xmlns='https://sts.amazonaws.com/doc/2011-06-15/'><{0}Result>"
           "<AssumedRoleUser><AssumedRoleId>A:B</AssumedRoleId><Arn>a</Arn></AssumedRoleUser>"
           "<Credentials><AccessKeyId>AKIDROLE</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
           "<SessionToken>t</SessionToken><Expiration>2100-01-01T00:00:00Z</Expiration>"
           "</Credentials></{0}Result></{0}Response>")
KEYS = "aws_access_key_id = AKIDONE\naws_secret_access_key = s\n"
HERE = "region = eu-west-1\nendpoint_url = $A\n"
LISTED = ("list A AKIDONE eu-west-1",)
# Sessions of aws login, and until when their keys are valid.
SESSIONS = {"valid": "2100-01-01T00:00:00Z", "ended": "2026-01-01T00:00:00Z"}
REFRESH_TOKEN = "refresh"


@dataclass(frozen=True)
class Form:
    """Files and variables, and what both programs ask for by them."""

    name: str
    asked: Sequence[str]
    """Every request, once; `refused` where there is none, and the program fails."""
    config: str = ""
    keys: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    profile: str = ""
    """The one that the command line names."""
    peer: Sequence[str] | None = None
    """What the AWS command line asks for where that differs."""
    why: str = ""


def _role(lines: str) -> str:
    return f"[default]\n{HERE}role_arn = {ROLE}\n{lines}"


def _login(session: str) -> str:
    return f"[default]\n{HERE}login_session = {session}\n"


ASSUME = f"assume A AKIDONE {ROLE}"
ROLE_LISTED = "list A AKIDROLE eu-west-1"
BASE = f"[profile base]\n{KEYS}"
FORMS = [
    # How the files are written.
    Form("keys in the credentials file", LISTED, f"[default]\n{HERE}", f"[default]\n{KEYS}"),
    Form("the credentials file counts first", LISTED, f"[default]\n{HERE}aws_access_key_id = NO\n"
         "aws_secret_access_key = s\n", f"[default]\n{KEYS}"),
    Form("settings in the credentials file", LISTED, "", f"[default]\n{KEYS}{HERE}"),
    Form("comments", LISTED, f"# x\n[default]\n; x\n{HERE}\n  # x\n{KEYS}"),
    Form("a comment after a section", LISTED, f"[default] # x\n{HERE}{KEYS}"),
    Form("a comment after a value is part of it", REFUSED,
         f"[default]\n{KEYS}endpoint_url = $A\nregion = eu-west-1 # x\n"),
    Form("all is indented", LISTED, "[default]\n  " + (HERE + KEYS).strip().replace("\n", "\n  ")),
    Form("colons and no spaces", LISTED, f"[default]\n{HERE}{KEYS}".replace(" = ", ":")),
    Form("upper case", LISTED, f"[default]\n{HERE}{KEYS}".replace("region", "REGION")
         .replace("aws_access_key_id", "AWS_Access_Key_Id")),
    Form("carriage returns", LISTED, f"[default]\n{HERE}{KEYS}".replace("\n", "\r\n")),
    Form("a name with spaces", LISTED, f'[profile "my own"]\n{HERE}{KEYS}', profile="my own"),
    Form("a name in single quotes", LISTED, f"[profile 'my own']\n{HERE}{KEYS}", profile="my own"),
    Form("a name with signs", LISTED, f"[profile a.b-c_d/e@f]\n{HERE}{KEYS}",
         profile="a.b-c_d/e@f"),
    Form("a section without the word profile", REFUSED, f"[one]\n{HERE}{KEYS}", profile="one"),
    Form("a section twice", REFUSED, f"[default]\n{HERE}[default]\n{KEYS}"),
    Form("[profile default] after [default]", LISTED,
         f"[default]\nregion = eu-west-2\n[profile default]\n{HERE}{KEYS}"),
    Form("[profile default] before [default]", LISTED,
         f"[profile default]\nregion = eu-west-2\n[default]\n{HERE}{KEYS}"),
    Form("a name without and with quotes", LISTED,
         f"[profile a]\nregion = eu-west-2\n[profile 'a']\n{HERE}{KEYS}", profile="a"),
    Form("a setting twice", REFUSED, f"[default]\n{HERE}{KEYS}region = us-west-2\n"),
    Form("a setting twice in the credentials file", REFUSED, f"[default]\n{HERE}",
         f"[default]\n{KEYS}{KEYS}"),
    Form("neither a section nor a setting", REFUSED, f"[default]\n{HERE}{KEYS}word\n"),
    Form("a setting before the first section", REFUSED, f"region = x\n[default]\n{HERE}{KEYS}"),
    Form("settings of [DEFAULT]", LISTED, f"[DEFAULT]\n{HERE}[default]\n{KEYS}[DEFAULT]\nx = y\n"),
    Form("[DEFAULT] alone", REFUSED, f"[DEFAULT]\n{HERE}{KEYS}", profile="DEFAULT"),
    Form("[DEFAULT] of the credentials file", LISTED, f"[default]\n{HERE}",
         f"[DEFAULT]\n{KEYS}[default]\n"),
    Form("other sections", LISTED, f"[preview]\nsdb = true\n[default]\n{HERE}"
         f"{KEYS}"),
    Form("settings below s3", LISTED, f"[default]\n{HERE}{KEYS}s3 =\n"
         "  max_concurrent_requests = 9\n  multipart_chunksize = 64MB\n"),
    # Which profile.
    Form("the profile of the command line", LISTED, f"[profile one]\n{HERE}", f"[one]\n{KEYS}",
         profile="one"),
    Form("the profile of AWS_PROFILE", LISTED, f"[profile one]\n{HERE}{KEYS}",
         variables={"AWS_PROFILE": "one"}),
    Form("the profile of AWS_DEFAULT_PROFILE", LISTED, f"[profile one]\n{HERE}{KEYS}",
         variables={"AWS_DEFAULT_PROFILE": "one"}),
    Form("no such profile", REFUSED, f"[default]\n{HERE}{KEYS}", profile="two"),
    Form("no such profile in AWS_PROFILE", REFUSED, f"[default]\n{HERE}{KEYS}",
         variables={"AWS_PROFILE": "two"}),
    Form("keys of the environment before those of AWS_PROFILE", ("list A AKIDENV eu-west-1",),
         f"[profile one]\n{HERE}{KEYS}", variables={
             "AWS_PROFILE": "one", "AWS_ACCESS_KEY_ID": "AKIDENV", "AWS_SECRET_ACCESS_KEY": "s"}),
    Form("the profile of the command line before keys of the environment", LISTED,
         f"[profile one]\n{HERE}{KEYS}", profile="one",
         variables={"AWS_ACCESS_KEY_ID": "AKIDENV", "AWS_SECRET_ACCESS_KEY": "s"}),
    # Which server.
    Form("AWS_ENDPOINT_URL_S3", LISTED, f"[default]\n{HERE}{KEYS}".replace("$A", "$B"),
         variables={"AWS_ENDPOINT_URL_S3": "$A", "AWS_ENDPOINT_URL": "$B"}),
    Form("AWS_ENDPOINT_URL", LISTED, f"[default]\n{HERE}{KEYS}".replace("$A", "$B"),
         variables={"AWS_ENDPOINT_URL": "$A"}),
    Form("a section of services", LISTED, f"[default]\n{HERE}{KEYS}services = m\n[services m]\n"
         "s3 =\n  endpoint_url = $A\nsts =\n  endpoint_url = $B\n"),
    Form("services before endpoint_url", LISTED,
         f"[default]\n{HERE}{KEYS}".replace("$A", "$B") +
         "services = m\n[services m]\ns3 =\n  endpoint_url = $A\n"),
    Form("no such services", REFUSED, f"[default]\n{HERE}{KEYS}services = m\n"),
    Form("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", ("connect lab.s3.eu-west-1.amazonaws.com:443",),
         f"[default]\n{HERE}{KEYS}", variables={"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}),
    Form("ignore_configured_endpoint_urls", ("connect lab.s3.eu-west-1.amazonaws.com:443",),
         f"[default]\n{HERE}{KEYS}ignore_configured_endpoint_urls = true\n"),
    # Which region.
    Form("AWS_DEFAULT_REGION", ("list A AKIDONE us-west-2",), f"[default]\n{HERE}{KEYS}",
         variables={"AWS_DEFAULT_REGION": "us-west-2"}),
    Form("AWS_REGION", ("list A AKIDONE us-west-2",), f"[default]\n{HERE}{KEYS}",
         variables={"AWS_REGION": "us-west-2"}, peer=LISTED,
         why="Version 1 of the AWS command line does not read AWS_REGION; version 2 and the SDKs "
             "do."),
    Form("no region", ("list A AKIDONE us-east-1",), f"[default]\nendpoint_url = $A\n{KEYS}"),
    Form("the endpoint of a region", ("connect lab.s3.eu-west-3.amazonaws.com:443",),
         f"[default]\nregion = eu-west-3\n{KEYS}"),
    Form("the endpoint of China", ("connect lab.s3.cn-north-1.amazonaws.com.cn:443",),
         f"[default]\nregion = cn-north-1\n{KEYS}"),
    Form("use_fips_endpoint", ("connect lab.s3-fips.us-east-2.amazonaws.com:443",),
         f"[default]\nregion = us-east-2\nuse_fips_endpoint = true\n{KEYS}"),
    Form("use_dualstack_endpoint", ("connect lab.s3.dualstack.us-east-2.amazonaws.com:443",),
         f"[default]\nregion = us-east-2\nuse_dualstack_endpoint = true\n{KEYS}"),
    Form("AWS_USE_FIPS_ENDPOINT", ("connect lab.s3-fips.us-east-2.amazonaws.com:443",),
         f"[default]\nregion = us-east-2\n{KEYS}", variables={"AWS_USE_FIPS_ENDPOINT": "true"}),
    Form("s3.use_dualstack_endpoint", ("connect lab.s3.dualstack.us-east-2.amazonaws.com:443",),
         f"[default]\nregion = us-east-2\ns3 =\n  use_dualstack_endpoint = true\n{KEYS}"),
    Form("s3.use_accelerate_endpoint", ("connect lab.s3-accelerate.amazonaws.com:443",),
         f"[default]\nregion = us-east-2\ns3 =\n  use_accelerate_endpoint = true\n{KEYS}"),
    Form("the endpoint of Transfer Acceleration", ("connect lab.s3-accelerate.amazonaws.com:443",),
         "[default]\nregion = us-east-2\nendpoint_url = https://s3-accelerate.amazonaws.com\n"
         f"{KEYS}"),
    Form("s3.addressing_style = path", ("connect s3.us-east-2.amazonaws.com:443",),
         f"[default]\nregion = us-east-2\ns3 =\n  addressing_style = path\n{KEYS}"),
    Form("s3.addressing_style = virtual", ("connect lab.store.example.com:443",),
         f"[default]\nendpoint_url = https://store.example.com\ns3 =\n"
         f"  addressing_style = virtual\n{KEYS}"),
    # Roles.
    Form("source_profile", (ASSUME, ROLE_LISTED), _role(f"source_profile = base\n{BASE}")),
    Form("source_profile in the credentials file", (ASSUME, ROLE_LISTED),
         _role("source_profile = base\n"), f"[base]\n{KEYS}"),
    Form("source_profile is the profile itself", (ASSUME, ROLE_LISTED),
         _role(f"source_profile = default\n{KEYS}")),
    Form("duration_seconds and more", (f"{ASSUME} 1800 id night", ROLE_LISTED),
         _role("source_profile = base\nduration_seconds = 1800\nexternal_id = id\n"
               f"role_session_name = night\n{BASE}")),
    Form("two roles", (f"{ASSUME}2", f"assume A AKIDROLE {ROLE}", ROLE_LISTED),
         _role(f"source_profile = middle\n[profile middle]\nrole_arn = {ROLE}2\n"
               f"source_profile = base\n{BASE}")),
    Form("credential_source", (ASSUME, ROLE_LISTED), _role("credential_source = Environment\n"),
         variables={"AWS_ACCESS_KEY_ID": "AKIDONE", "AWS_SECRET_ACCESS_KEY": "s"},
         profile="default"),
    Form("a role by credential_process", (ASSUME, ROLE_LISTED),
         _role("source_profile = base\n[profile base]\ncredential_process = cat $HOME/printed\n")),
    Form("a web identity", (f"identify A {ROLE} night", ROLE_LISTED),
         _role("web_identity_token_file = $HOME/token\nrole_session_name = night\n"
               "duration_seconds = 1800\n")),
    Form("AWS_ENDPOINT_URL_STS", (ASSUME.replace(" A ", " B "), ROLE_LISTED),
         _role(f"source_profile = base\n{BASE}"), variables={"AWS_ENDPOINT_URL_STS": "$B"}),
    Form("no such source_profile", REFUSED, _role("source_profile = nowhere\n")),
    Form("a circle of source_profile", REFUSED,
         _role(f"source_profile = b\n[profile b]\nrole_arn = {ROLE}\nsource_profile = default\n")),
    Form("a role without a source", REFUSED, _role("")),
    Form("both sources", REFUSED, _role(f"source_profile = base\ncredential_source = Environment\n"
                                        f"{BASE}")),
    Form("no such credential_source", REFUSED, _role("credential_source = Nonsense\n")),
    # Other keys.
    Form("credential_process", LISTED,
         f"[default]\n{HERE}credential_process = cat $HOME/printed\n"),
    Form("keys of the credentials file before credential_process", LISTED,
         f"[default]\n{HERE}credential_process = false\n", f"[default]\n{KEYS}"),
    Form("credential_process before keys of the configuration file", LISTED,
         f"[default]\n{HERE}aws_access_key_id = NO\naws_secret_access_key = s\n"
         "credential_process = cat $HOME/printed\n"),
    Form("a credential_process that fails", REFUSED,
         f"[default]\n{HERE}credential_process = false\n"),
    Form("a session of single sign-on that has ended", REFUSED,
         f"[default]\n{HERE}sso_session = s\nsso_account_id = 111122223333\nsso_role_name = r\n"
         "[sso-session s]\nsso_region = us-east-1\nsso_start_url = https://lab.invalid/start\n"),
    Form("a session of aws login", ("list A AKIDLOGIN eu-west-1",), _login("valid")),
    Form("a session of aws login that is renewed",
         (f"renew A {REFRESH_TOKEN}", "list A AKIDROLE eu-west-1"), _login("ended")),
    Form("a session of aws login before credential_process", ("list A AKIDLOGIN eu-west-1",),
         _login("valid") + "credential_process = false\n"),
    Form("keys of the configuration file after a session of aws login",
         ("list A AKIDLOGIN eu-west-1",), _login("valid") + KEYS),
    Form("keys of the credentials file before a session of aws login", LISTED,
         _login("valid"), f"[default]\n{KEYS}"),
    Form("no such session of aws login", REFUSED, _login("nobody")),
    Form("no such session of single sign-on", REFUSED,
         f"[default]\n{HERE}sso_session = s\nsso_account_id = 111122223333\nsso_role_name = r\n"),
    Form("half a pair of keys", REFUSED, f"[default]\n{HERE}aws_access_key_id = AKIDONE\n"),
    Form("response_checksum_validation", LISTED,
         f"[default]\n{HERE}{KEYS}response_checksum_validation = when_required\n"),
    Form("another response_checksum_validation", REFUSED,
         f"[default]\n{HERE}{KEYS}response_checksum_validation = never\n"),
]


class _Recorder(BaseHTTPRequestHandler):
    """Answers as STS and as S3 do, and writes down what is asked."""

    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing."""

    def _answer(self, status: int, body: str = "") -> None:
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _credential(self) -> list[str]:
        found = re.search(r"Credential=([^/]+)/[^/]+/([^/]+)/", self.headers["Authorization"] or "")
        return list(found.groups()) if found else ["nobody", "nowhere"]

    def do_GET(self) -> None:
        """A listing."""
        self.server.note("list", *self._credential())
        self._answer(200, LISTING)

    def do_POST(self) -> None:
        """A question to STS, or to the sign-in service."""
        body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
        if self.path == "/v1/token":
            self.server.note("renew", json.loads(body)["refreshToken"])
            keys = {"accessKeyId": "AKIDROLE", "secretAccessKey": "s", "sessionToken": "t"}
            return self._answer(200, json.dumps({
                "accessToken": keys, "tokenType": "aws_sigv4", "expiresIn": 900,
                "refreshToken": "newer"}))
        form = parse_qs(body)
        action = form["Action"][0]
        names = ["DurationSeconds", "ExternalId", "RoleSessionName"]
        more = [form[name][0] for name in names if name in form]
        # A name that nobody gave is another one in each program.
        more = [word for word in more if word in ("night", "id") or word.isdigit()]
        is_web = action == "AssumeRoleWithWebIdentity"
        who = ["identify"] if is_web else ["assume"]
        self.server.note(*who, *([] if is_web else self._credential()[:1]), form["RoleArn"][0],
                         *more)
        return self._answer(200, ASSUMED.format(action))

    def do_CONNECT(self) -> None:
        """A way to AWS, which there is not."""
        self.server.note("connect", self.path)
        self._answer(403)


class _Server(ThreadingHTTPServer):
    """One of the servers, by its letter."""

    daemon_threads = True

    def __init__(self, name: str, seen: list[str]) -> None:
        super().__init__(("127.0.0.1", 0), _Recorder)
        self.name, self.seen = name, seen

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def note(self, what: str, *words: str) -> None:
        """Writes a request down, once."""
        where = [] if what == "connect" else [self.name]
        line = " ".join([what, *where, *words])
        if line not in self.seen:
            self.seen.append(line)


@contextmanager
def _serving(name: str, seen: list[str]) -> Iterator[str]:
    """A server; its URL."""
    server = _Server(name, seen)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Lab:
    """The servers, and a home folder for the files."""

    def __init__(self, stack: ExitStack, home: Path, programs: Path) -> None:
        self._seen: list[str] = []
        self._home, self._programs = home, programs
        self._urls = {f"${name}": stack.enter_context(_serving(name, self._seen)) for name in "ABP"}
        home.mkdir()
        (home / "token").write_text("token")
        openssl = install.system_program("openssl")
        key = process.run([openssl, "ecparam", "-name", "prime256v1", "-genkey", "-noout"],
                          seconds=RUN_SECONDS)
        self._private_key = key.well("openssl").stdout
        (home / "printed").write_text(
            '{"Version": 1, "AccessKeyId": "AKIDONE", "SecretAccessKey": "s"}')

    def _filled(self, text: str) -> str:
        for name, value in {**self._urls, "$HOME": str(self._home)}.items():
            text = text.replace(name, value)
        return text

    def _log_in(self) -> None:
        """Begins the sessions of aws login, as if nobody had renewed them."""
        folder = self._home / "logins"
        folder.mkdir(exist_ok=True)
        for name, ends in SESSIONS.items():
            keys = {"accessKeyId": "AKIDLOGIN", "secretAccessKey": "s", "sessionToken": "t",
                    "accountId": "111122223333", "expiresAt": ends}
            session = {"accessToken": keys, "refreshToken": REFRESH_TOKEN, "tokenType": "aws_sigv4",
                       "clientId": "arn:aws:signin:::devtools/same-device",
                       "dpopKey": self._private_key}
            file = folder / f"{hashlib.sha256(name.encode()).hexdigest()}.json"
            file.write_text(json.dumps(session))

    def asked(self, program: str, form: Form) -> tuple[Sequence[str], str]:
        """What a program asks for by a form, and its last words."""
        for name, text in [("config", form.config), ("credentials", form.keys)]:
            (self._home / name).write_text(self._filled(text), newline="")
        env = client.clean_environment(self._home, {
            "PATH": f"{self._programs}:{install.SYSTEM_PATH}", "LC_ALL": "C.UTF-8",
            "AWS_CONFIG_FILE": str(self._home / "config"), "AWS_MAX_ATTEMPTS": "1",
            "AWS_SHARED_CREDENTIALS_FILE": str(self._home / "credentials"),
            "AWS_LOGIN_CACHE_DIRECTORY": str(self._home / "logins"),
            "HTTPS_PROXY": self._urls["$P"],
            **{name: self._filled(value) for name, value in form.variables.items()}})
        words = {"aws": ["aws", "s3", "ls", "s3://lab/"],
                 "inrush": ["inrush", "ls", "s3://lab/", "--retry-for", "1ms"]}[program]
        named = ["--profile", form.profile] if form.profile else []
        # The AWS command line keeps the keys of a role there.
        shutil.rmtree(self._home / ".aws", ignore_errors=True)
        self._log_in()
        self._seen.clear()
        outcome = process.run([*words, *named], seconds=RUN_SECONDS, env=env)
        seen = tuple(self._seen)
        if outcome.code != 0 and not seen:
            return REFUSED, outcome.last_words()
        return seen, outcome.last_words()
