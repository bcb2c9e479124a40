"""Commands in processes of their own, forked from one that has imported torch, numba and the like, which takes long.

Nothing of superfeat is imported beforehand: a command still imports what it uses, and a program what it names.
"""

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import types
from collections.abc import Iterator
from pathlib import Path

HEAVY = ("torch", "numba", "numpy", "PIL.Image", "safetensors.torch", "click", "jaxtyping")
# Threads do not survive a fork: none may have been started.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NUMBER = struct.Struct("=q")
HERE = Path(__file__).resolve()  # commands have other folders


@contextlib.contextmanager
def warm_commands(place: Path) -> Iterator[Path]:
    """Puts programs `superfeat` and `python` (for -c alone) into this folder: to be the first of PATH.

    The path of the folder should be short, as that of a socket has to be.
    """
    import subprocess  # not at the top: `ask` is to start quickly

    address = place / "socket"
    command = [sys.executable, str(HERE), "serve", str(address)]
    environment = {**os.environ, **ONE_THREAD}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        with server.stdin:  # the server ends when this is closed, whatever becomes of this process
            assert server.stdout.readline() == b"ready\n"
            for name in ("superfeat", "python"):
                program = place / name
                program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{HERE}" ask "{address}" "$0" "$@"\n')
                program.chmod(0o755)
            yield place


def ask(address: str, arguments: list[str]) -> None:
    """Has the command run with the files, folder and environment of this process, and ends as it ends."""
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # until there is somebody to forward them to
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(address)
        request = json.dumps([arguments, str(Path.cwd()), dict(os.environ)]).encode()
        socket.send_fds(asked, [NUMBER.pack(len(request))], [0, 1, 2])
        asked.sendall(request)
        command = receive_number(asked)
        for number in FORWARDED:
            signal.signal(number, lambda number, _: os.kill(command, number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        code = receive_number(asked)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def receive_number(asked: socket.socket) -> int:
    number: int = NUMBER.unpack(asked.recv(NUMBER.size, socket.MSG_WAITALL))[0]
    return number


def serve(address: str) -> None:
    """Runs the command of each that asks in a process of its own, until stdin is closed."""
    import_heavy()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        while listener in select.select([listener, sys.stdin], [], [])[0]:
            asked, _ = listener.accept()
            with asked:
                if os.fork() == 0:
                    listener.close()
                    return keep(asked)
            reap()
    return reap()


def reap() -> None:
    """Takes note of the processes that have ended, so that their time counts as that of the tests."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def import_heavy() -> None:
    for name in HEAVY:
        importlib.import_module(name)
    sys.modules["numba"].njit(lambda: 0)()  # most of numba is imported by the first function that is compiled
    threads = Path("/proc/self/task")
    assert not threads.exists() or len(list(threads.iterdir())) == 1
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def keep(asked: socket.socket) -> None:
    """Starts the command and tells who asked how it ended; returns at the end of the command, in its process."""
    length, files, _, _ = socket.recv_fds(asked, NUMBER.size, 3)
    request = asked.recv(NUMBER.unpack(length)[0], socket.MSG_WAITALL)
    command = os.fork()
    if command == 0:
        asked.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        return run(*json.loads(request))
    for file in files:
        os.close(file)
    asked.sendall(NUMBER.pack(command))
    _, status = os.waitpid(command, 0)
    with contextlib.suppress(OSError):  # it may have been killed
        asked.sendall(NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def run(arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    """What Python does with these arguments; the caller ends the process as usual, with all that is to be closed."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    program = Path(arguments[0]).name
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    if program == "superfeat":
        sys.argv, sys.path[0] = arguments, str(Path(sys.executable).parent)
        code = "from superfeat.__main__ import run\nrun()"
    else:
        assert arguments[1] == "-c"
        sys.argv, sys.path[0] = arguments[1:2] + arguments[3:], ""
        code = arguments[2]
    exec(compile(code, "<string>", "exec"), vars(main))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        ask(sys.argv[2], sys.argv[3:])
