# SPDX-License-Identifier: GPL-2.0
"""Speaks to QEMU while a guest runs."""

import json
import socket


class Monitor:
    """QEMU's monitor (QMP)."""

    def __init__(self, path, timeout):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        self.socket.connect(path)
        self.file = self.socket.makefile("rw", encoding="utf-8")
        json.loads(self.file.readline())
        self("qmp_capabilities")

    def __call__(self, command, **arguments):
        """Run a command and return its result."""
        json.dump({"execute": command, "arguments": arguments}, self.file)
        self.file.write("\n")
        self.file.flush()
        while True:
            answer = json.loads(self.file.readline())
            if "error" in answer:
                raise RuntimeError(f"{command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]
