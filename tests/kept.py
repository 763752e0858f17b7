"""Sends commands to a longhaul-torch that has loaded LibTorch (tests/support/kept_program.cpp).

mpirun starts this file for each rank: kept.py ADDRESS LONGHAUL ARGUMENT... runs the command there,
passes signals on, and ends as the command does."""

import os
import signal
import socket
import struct
import sys

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


def connect(address):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(address)
    return connection


def send(connection, command, environment, directory, streams):
    """Has the command run with these descriptors as its streams."""
    words = [str(len(command)), directory, *command,
             *(f"{name}={value}" for name, value in environment.items())]
    message = b"".join(os.fsencode(word) + b"\0" for word in words)
    socket.send_fds(connection, [message], streams)


def exit_code(connection):
    """Waits for the end of the command; a signal that has ended it is a negative number."""
    return os.waitstatus_to_exitcode(*struct.unpack("i", connection.recv(4)))


def main(address, *command):
    connection = connect(address)
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: connection.send(bytes([number])))
    send(connection, command, os.environ, os.getcwd(), [0, 1, 2])
    code = exit_code(connection)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
