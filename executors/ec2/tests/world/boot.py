"""What runs on an instance: a small web server at its address, which answers with the instance's own user data.

Only where a region's nature says `boot`, and on loopback addresses. It answers while the instance runs, on the port that
the world itself listens on, which is then free at every other address. One thread serves all of them.
"""

import base64
import selectors
import socket
import threading

PORT = 0  # set once the world listens

_listening = selectors.DefaultSelector()


def begin(here, one):
    """Lets an instance answer from now on."""
    one._socket = socket.create_server((one.nics[0].private_ip_address, PORT), backlog=64)
    one._socket.setblocking(False)
    here.booted.append(one)
    _listening.register(one._socket, selectors.EVENT_READ, one)


def end(one):
    """Lets an instance fall silent; its address is free again."""
    listening = getattr(one, "_socket", None)
    if listening:
        one._socket = None
        _listening.unregister(listening)
        listening.close()


def forget(here):
    """Ends whatever answers in a region."""
    for one in getattr(here, "booted", []):
        end(one)
    here.booted = []


def serve():
    """Answers whoever asks, one after the other."""
    while True:
        # A moment at most: what begins while this waits is waited for from the next time on.
        for key, _ in _listening.select(0.1):
            try:
                answer(key.fileobj, key.data)
            except OSError:
                pass  # the instance has just ended, or whoever asked is gone


def answer(listening, one):
    connection, _ = listening.accept()
    with connection:
        connection.settimeout(1)
        connection.recv(4096)
        if one.state == "running":
            text = base64.b64decode(str(one.user_data or ""))
            connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text)


threading.Thread(target=serve, daemon=True).start()
