"""The program NGINX: where it is, what it refuses in which words, and its files on free ports of loopback."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from pwd import getpwuid

from specops.errors import EnvironmentFailure, FileError, UsageError, reason_of
from specops.hints import ROLLOUT, in_rollout
from specops.router.nginx.configuration import CONF, LUA, RULES, SWITCH_STATE
from specops.router.protocol import Pools, Refusal
from specops.serving import Survey

PLACES = ("/usr/sbin", "/usr/local/sbin", "/sbin", "/usr/local/openresty/nginx/sbin")
"""Where it is installed, and where a user's PATH does not lead."""
LUA_MODULES = ("/usr/lib/nginx/modules", "/usr/lib64/nginx/modules", "/usr/local/lib/nginx/modules")
LUA_MODULE = "ngx_http_lua_module.so"
INSTALL = "apt-get install nginx libnginx-mod-http-lua"
TIMEOUT_S = 30.0
VERSION_S = 5.0


def find(program: str | None) -> str:
    """Return the path of the program. Raises EnvironmentFailure where it is not installed."""
    path = _path(program or "nginx")
    if path is None:
        raise EnvironmentFailure(
            f"could not find {program or 'nginx'}: expected it on PATH, or --program PATH",
            hint=f"{INSTALL}  # on Debian",
        )
    return path


def _path(program: str) -> str | None:
    return shutil.which(program, path=os.pathsep.join((os.environ.get("PATH", ""), *PLACES)))


def survey() -> Survey:
    program = _path("nginx")
    if program is None:
        return Survey("missing", "not installed", INSTALL)
    try:
        done = subprocess.run([program, "-V"], capture_output=True, text=True, timeout=VERSION_S, check=False)
        built = done.stdout + done.stderr
    except (subprocess.SubprocessError, OSError):
        built = ""
    number = re.search(r"nginx/([\d.]+)", built)
    version = f"{number[1] if number else 'of an unknown version'} ({program})"
    if "lua" in built or "openresty" in built:
        return Survey("ok", f"{version}, with Lua built in", "")
    folder = next((folder for folder in LUA_MODULES if (Path(folder) / LUA_MODULE).exists()), None)
    if folder:
        return Survey("ok", f"{version}, with its Lua module in {folder}", "")
    return Survey(
        "warn",
        f"{version}, without its Lua module",
        "apt-get install libnginx-mod-http-lua  # or set route.nginx.lua: false",
    )


def refusal(program: str, folder: Path) -> Refusal | None:
    """Return the first error of `nginx -t` in `folder`; None: it loads the files."""
    words = [program, "-t", "-q", "-p", str(folder), "-c", CONF, "-e", "stderr"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFailure(f"could not run {program}: {reason_of(error)}") from error
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if "[emerg]" in line] or done.stderr.splitlines()
    message = lines[0] if lines else f"exit code {done.returncode}"
    return explained(re.sub(r"^.*?\[emerg\] \d+#\d+: ", "", message).replace(f"{folder}/", ""))


_EXPLANATIONS = (
    (
        r'host not found in (?:upstream )?"([^"]+)"',
        "the name {0} does not resolve here, and NGINX looks names up only when it starts",
        "getent hosts {0}  # give addresses, or names that resolve where NGINX runs",
    ),
    (
        r'dlopen\(\) "([^"]+)" failed',
        "NGINX's Lua module is not at {0}",
        "apt-get install libnginx-mod-http-lua  # on Debian; else set route.nginx.modules, or lua: false",
    ),
    (
        r'unknown directive "(lua_\w+|\w+_by_lua\w*)"',
        "this NGINX has no Lua module",
        "find / -name ngx_http_lua_module.so  # set route.nginx.modules to its folder, or lua: false",
    ),
    (
        r"bind\(\) to (\S+) failed \(13",
        "this user may not listen on {0}",
        "id -u  # only root may: set route.nginx.user and start as root, or listen on a port above 1023",
    ),
    (
        r'getpwnam\("([^"]+)"\) failed',
        "there is no user {0} here",
        "cut -d: -f1 /etc/passwd  # set route.nginx.user to one of these",
    ),
)


def explained(message: str) -> Refusal:
    """NGINX's error as a sentence, and a hint."""
    for pattern, reason, hint in _EXPLANATIONS:
        if match := re.search(pattern, message):
            sentence = f"NGINX refuses the configuration: {reason.format(*match.groups())}"
            return Refusal(message, sentence, hint.format(*match.groups()))
    return Refusal(
        message,
        f"NGINX refuses the configuration: {message}",
        in_rollout("route", "correct this section"),
    )


def read_files(main: Path) -> dict[str, str]:
    """Return the files with Lua beside `main`. Raises FileError."""
    names = [RULES, *(f"lua/specops/{name}.lua" for name in LUA)]
    try:
        files = {name: (main.parent / name).read_text(encoding="utf-8") for name in names}
        files[CONF] = main.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(
            f"could not read the router's configuration in {main.parent}: {reason_of(error)}; expected one "
            "with Lua",
            hint=f"specops route render {ROLLOUT}",
        ) from error
    return files


_LISTEN = r"(?m)^( *listen )\S+;"
_SERVERS = r"(?s)(upstream specops_{pool} \{{.*?)\n( *server [^\n]+\n)+"
_UP = """        location = /v1/models {
            return 200 '{"data": [{"id": "router"}]}';
        }
"""
"""Path on the admin listener that is requested at the start, whatever paths the router serves."""


def moved(files: Mapping[str, str], listen: int, admin: int, pools: Pools) -> dict[str, str]:
    """Return the files with these ports and servers in place of their own, the switch at 100%, and no random
    windows, in which nothing would be speculative for minutes."""
    text = files[CONF]
    ports = iter((listen, admin))
    servers = {pool: _SERVERS.format(pool=pool) for pool in pools}
    if len(re.findall(_LISTEN, text)) != 2 or any(
        len(re.findall(server, text)) != 1 for server in servers.values()
    ):
        raise UsageError(
            "this is not a configuration that specops rendered: expected the rollout file, or the "
            "nginx.conf in the folder rendered/nginx",
            hint=f"specops route render {ROLLOUT}",
        )
    text = re.sub(_LISTEN, lambda match: f"{match[1]}127.0.0.1:{next(ports)};", text)
    for pool, pattern in servers.items():
        server = f"\n        server 127.0.0.1:{pools[pool]};\n"
        text = re.sub(pattern, lambda match, server=server: match[1] + server, text)  # type: ignore[misc]
    text = re.sub(r"(?m)^( *limit_(req|conn) .*|user .*)$", "", text)
    text = re.sub(r"(?m)^ *location = /health \{", lambda match: _UP + match[0], text, count=1)
    # Workers run as this user: the folder belongs to nobody else.
    user = f"user {getpwuid(os.geteuid()).pw_name};\n" if os.geteuid() == 0 else ""
    conf = user + re.sub(r"(?m)^worker_processes .*$", "worker_processes 1;", text)
    rules = re.sub(r"(?m)^ *windows = \{[^{}]*\},\n", "", files[RULES])
    return {**files, CONF: conf, RULES: rules, SWITCH_STATE: '{"speculative_percent": 100}\n'}


def trusted_networks(text: str) -> list[str]:
    """The networks whose callers may choose the pool, read from a configuration."""
    section = re.search(r"geo \$specops_trusted \{(.*?)\}", text, re.DOTALL)
    return re.findall(r"(\S+) 1;", section[1]) if section else []
