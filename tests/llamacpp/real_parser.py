"""llama.cpp's own parser of arguments, out of the package xllamacpp: what does it say to each command?

    python real_parser.py < COMMANDS

Reads a JSON list of lists of words on standard input, without the program. Prints a JSON list of
[accepted, what it said]. Each is parsed in a process of its own, since some flags end the process.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile

import xllamacpp
import xllamacpp.xllamacpp as library

PARSE = "_Z19common_params_parseiPPcR13common_params13llama_examplePFviS0_E"
HEAD = 16
"""Bytes of a Python object before the settings that it holds (xllamacpp.pyx: `cdef common_params p`)."""

SERVER = 12
"""LLAMA_EXAMPLE_SERVER of b11549 (common/common.h)."""


def accepted(words: list[str]) -> bool:
    parse = ctypes.CDLL(library.__file__)[PARSE]
    parse.restype = ctypes.c_bool
    settings = xllamacpp.CommonParams()
    given = [b"llama-server", *(word.encode() for word in words)]
    argv = (ctypes.c_char_p * (len(given) + 1))(*given, None)
    return bool(parse(len(given), argv, ctypes.c_void_p(id(settings) + HEAD), SERVER, None))


def asked(words: list[str]) -> tuple[bool, str]:
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            os._exit(0 if accepted(words) else 1)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return os.waitstatus_to_exitcode(status) == 0, said.read().decode(errors="replace")


if __name__ == "__main__":
    print(json.dumps([asked(words) for words in json.load(sys.stdin)]))
