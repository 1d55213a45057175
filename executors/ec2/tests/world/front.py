"""A world of EC2 on loopback: moto, made to behave like EC2 by `nature`, behind a front that can misbehave.

    python front.py            prints `ready PORT`; ends when its standard input is closed

`POST /_world/REGION` with a JSON object steers one region and answers with the truth about it:

    reset: true                     faults, tokens, log and nature as at the start
    config: {...}                   see `nature.DEFAULTS`
    rules: [...]                    replaces the faults, see `Rule`
    end: {id, code, message}        ends an instance behind everybody's back
    stop: ID, protect: ID, unprotect: ID
    forget: ID                      removes every trace of an instance
    move: ID                        gives an instance another private address
    change: {id, tags, token}       rewrites what an instance carries
"""

import io
import json
import logging
import os
import re
import socket
import sys
import threading
import time
from urllib.parse import parse_qsl

import boot
import nature  # before moto's server: it patches what the server is made of
import rights
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class Rule:
    """One fault. `action` (or `*`), `match` (parameters of the request) and `dry` (whether it is a rehearsal; without
    it, both) choose the calls; of those, `skip` are let through, and then every `every`th is hit, `times` times (-1: for good). `when` is `before` or `after` the act;
    `kind` is one of

        error    status, code, message, retry_after: an error of EC2 is the answer
        drop     the connection is reset
        hang     nothing for `s` seconds, then a reset
        delay    `s` seconds pass, then it goes on as usual: before the act, the act is late; after it, the answer
        empty, garbage, page    a success without a body, with a broken one, an HTML page of status 500
        cut      half of the answer, then a reset
        short    half of the answer, as if that were all of it
        nothing  a well-formed listing of nothing
        blank    a page of a listing with nothing on it, and the token of the page that should have come
        forget-first    the oldest instance is gone without a trace before this call
        twice    it is acted upon twice, as if the token had not been seen
    """

    def __init__(self, spec):
        self.spec, self.seen, self.fired = spec, 0, 0

    def take(self, action, when, parameters):
        spec = self.spec
        if spec["action"] not in (action, "*") or spec.get("when", "before") != when:
            return False
        if any(parameters.get(key) != value for key, value in spec.get("match", {}).items()):
            return False
        if "dry" in spec and spec["dry"] != (parameters.get("DryRun") == "true"):
            return False
        self.seen += 1
        if self.seen <= spec.get("skip", 0) or (self.seen - spec.get("skip", 0)) % spec.get("every", 1):
            return False
        times = spec.get("times", 1)
        if times >= 0 and self.fired >= times:
            return False
        self.fired += 1
        return True


class Front:
    def __init__(self, inner):
        self.inner = inner

    def __call__(self, env, start):
        body = env["wsgi.input"].read(int(env.get("CONTENT_LENGTH") or 0))
        env["wsgi.input"] = io.BytesIO(body)
        if env["PATH_INFO"].startswith("/_world/"):
            return self.steer(env["PATH_INFO"].removeprefix("/_world/"), json.loads(body or b"{}"), start)
        parameters = dict(parse_qsl(body.decode("latin1")))
        action = parameters.get("Action", "-")
        scope = re.search(r"Credential=[^/]+/\d+/([^/]+)/", env.get("HTTP_AUTHORIZATION", ""))
        here = nature.region(scope.group(1) if scope else "-")
        entry = {"action": action, "at": time.time(), "token": parameters.get("ClientToken"),
                 "dry": parameters.get("DryRun") == "true"}
        with here.lock:
            here.log.append(entry)
        if scope and not nature.exists(scope.group(1)):
            message = f"Credential should be scoped to a valid region, not '{scope.group(1)}'."
            return answer_error({"status": 401, "code": "AuthFailure", "message": message}, start)
        missing = rights.missing(here.config["allowed"], action, parameters, scope and scope.group(1))
        if missing:
            message = f"You are not authorized to perform this operation: {missing}"
            return answer_error({"status": 403, "code": "UnauthorizedOperation", "message": message}, start)
        rule = self.take(here, action, "before", parameters)
        if rule:
            entry["fault"] = rule["kind"]
            if rule["kind"] == "forget-first":
                name = scope.group(1)
                nature.forget(name, nature.instances(name)[0]["id"])
                out = None
            else:
                out = self.twice(env, body) if rule["kind"] == "twice" else self.fault(rule, env, start)
            if out is not None:
                return out
        rule = self.take(here, action, "after", parameters)
        if not rule:
            return self.inner(env, start)
        entry["fault"] = rule["kind"]
        heard = []
        answer = b"".join(self.inner(env, lambda status, headers, *_: heard.append((status, headers))))
        out = self.fault(rule, env, start, answer)
        if out is not None:
            return out
        start(*heard[0])
        return [answer]

    def twice(self, env, body):
        """Acts once more than asked, under a token that nobody knows."""
        other = re.sub(rb"ClientToken=[^&]*", b"ClientToken=unseen-%d" % time.time_ns(), body)
        again = dict(env, CONTENT_LENGTH=str(len(other)), **{"wsgi.input": io.BytesIO(other)})
        list(self.inner(again, lambda *_: None))

    @staticmethod
    def take(here, action, when, parameters):
        with here.lock:
            for rule in here.rules:
                if rule.take(action, when, parameters):
                    return rule.spec
        return None

    @staticmethod
    def fault(rule, env, start, answer=b""):
        kind = rule["kind"]
        if kind == "delay":
            time.sleep(rule["s"])
            return None
        if kind == "error":
            return answer_error(rule, start)
        if kind in ("empty", "garbage", "page", "nothing", "blank"):
            text = {
                "empty": b"",
                "garbage": b"<RunInstancesResponse><instancesSet><item><instanceId>i-",
                "page": b"<html><body>Bad Gateway</body></html>",
                "nothing": b'<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
                b"<requestId>r</requestId><reservationSet/></DescribeInstancesResponse>",
                "blank": b'<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
                b"<requestId>r</requestId><reservationSet/><nextToken>" + nature.FROM_THE_START.encode()
                + b"</nextToken></DescribeInstancesResponse>",
            }[kind]
            start("500 Oops" if kind == "page" else "200 OK", headers("text/xml", text))
            return [text]
        if kind == "cut":
            start("200 OK", [("Content-Type", "text/xml"), ("Content-Length", str(len(answer) + 1000))])
            return reset_after(env, answer[: len(answer) // 2])
        if kind == "short":
            half = answer[: len(answer) // 2]
            start("200 OK", headers("text/xml", half))
            return [half]
        if kind == "hang":
            time.sleep(rule.get("s", 30))
        reset(env)
        raise ConnectionResetError("a fault")

    @staticmethod
    def steer(name, wish, start):
        here = nature.region(name)
        with here.lock:
            if wish.get("reset"):
                here.reset()
                nature.empty(name)
            here.config.update(wish.get("config", {}))
            if "rules" in wish:
                here.rules = [Rule(spec) for spec in wish["rules"]]
            if "protect" in wish:
                here.protected.add(wish["protect"])
            if "unprotect" in wish:
                here.protected.discard(wish["unprotect"])
            if "end" in wish:
                nature.end(name, **wish["end"])
            if "stop" in wish:
                nature.find(name, wish["stop"]).stop()
            if "forget" in wish:
                nature.forget(name, wish["forget"])
            if "move" in wish:
                nature.move(name, wish["move"])
            if "change" in wish:
                nature.change(name, **wish["change"])
            fired = [rule.fired for rule in here.rules]
            told = {"instances": nature.instances(name), "log": list(here.log), "fired": fired}
            if wish.get("subnets"):
                told["subnets"] = {one.id: one.availability_zone for one in nature.backend(name).describe_subnets()}
                told["security_group"] = nature.backend(name).describe_security_groups()[0].id
        out = json.dumps(told).encode()
        start("200 OK", headers("application/json", out))
        return [out]


def headers(kind, text):
    return [("Content-Type", kind), ("Content-Length", str(len(text)))]


def answer_error(rule, start):
    code, message = rule["code"], rule.get("message", "injected")
    text = (
        f'<?xml version="1.0"?><Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>'
        "<RequestID>injected</RequestID></Response>"
    ).encode()
    more = [("Retry-After", str(rule["retry_after"]))] if "retry_after" in rule else []
    start(f"{rule.get('status', 400)} X", headers("text/xml", text) + more)
    return [text]


def reset_after(env, part):
    yield part
    reset(env)


def reset(env):
    # A reset instead of an orderly end. The server keeps further handles of the socket, so closing is not enough.
    connection = env["werkzeug.socket"]
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.shutdown(socket.SHUT_RDWR)


class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, kind, message, *args):
        if kind == "error":
            print(message % args, file=sys.stderr)


def main():
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)

    # Whoever started this world holds the other end; when it is gone, so is the world.
    def watch():
        while sys.stdin.buffer.read(4096):
            pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    server = make_server("127.0.0.1", 0, Front(DomainDispatcherApplication(create_backend_app)), threaded=True, request_handler=Quiet)
    boot.PORT = server.server_port
    nature.instances("us-east-1")  # the first call makes the region; let that be over before anybody waits for it
    print("ready", server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
