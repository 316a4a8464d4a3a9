"""The API by HTTPS: with a certificate and its key as files, for clients that check it."""
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time

from cluster import BUILD, Cluster, SCALE, ended
from tap import main, test

ASKED = {"model": "demo", "messages": [{"role": "user", "content": "What is the capital of Cuba?"}], "temperature": 0, "max_tokens": 16}


def pair_make(folder, name):
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    files = [os.path.join(folder, f"{name}.{kind}") for kind in ("crt", "key")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return files


def hello_of(certificate):
    """The first flight of a client's handshake."""
    said = ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=certificate).wrap_bio(ssl.MemoryBIO(), said, server_hostname="127.0.0.1")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return said.read()


class Secured:
    """The cluster's coordinator again, with a certificate."""

    def __init__(self, c, certificate, key):
        self.c, self.certificate = c, certificate
        pid = c.local()["coordinator"]["pid"]
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            command = [part.decode() for part in f.read().split(b"\0") if part]
        os.kill(pid, signal.SIGTERM)
        c.wait("the coordinator ends", lambda: ended(pid))
        command[command.index("--http") + 1] = f"127.0.0.1:{c.port}"
        command[command.index("--listen") + 1] = c.hpctl("context", "ls")[0]["control"]
        self.log = open(os.path.join(c.folder, "secured.log"), "wb")
        self.process = subprocess.Popen([*command, "--http-cert", certificate, "--http-key", key], stderr=self.log, env=c.env)

    def connect(self, **more):
        return http.client.HTTPSConnection("127.0.0.1", self.c.port, timeout=60 * SCALE, context=ssl.create_default_context(cafile=self.certificate), **more)

    def ask(self, path, body=None, connection=None):
        connection = connection or self.connect()
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        return connection.getresponse()

    def seconds(self):
        """Of processor time, so far."""
        with open(f"/proc/{self.process.pid}/stat") as f:
            return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self):
        self.c.wait("it answers", lambda: self.ask("/health").status == 200)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.close()


@test
def the_api_is_reached_by_https():
    with Cluster(agents=1, cores=1) as c:
        c.deploy()
        certificate, key = pair_make(c.folder, "mine")
        other = pair_make(c.folder, "another")
        with Secured(c, certificate, key) as s:
            c.wait_serving()
            kept = s.connect()
            whole = json.load(s.ask("/v1/chat/completions", ASKED, kept))["choices"][0]["message"]["content"]
            assert "Havana" in whole, whole
            text = ""
            for line in s.ask("/v1/chat/completions", dict(ASKED, stream=True), kept):  # on the same connection
                if line.startswith(b"data: {"):
                    text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
            assert text == whole, (text, whole)
            assert s.ask("/v1/models", None, kept).status == 200
            # Who stops in the middle of a stream is seen to be gone.
            half = s.connect()
            assert s.ask("/v1/chat/completions", dict(ASKED, stream=True, max_tokens=200, ignore_eos=True), half).readline()
            half.sock.close() if half.sock else half.close()
            # A reply that goes out before the body is read has its words.
            refused = s.connect()
            refused.putrequest("POST", "/v1/chat/completions")
            refused.putheader("Content-Type", "application/json")
            refused.putheader("Content-Length", str(1 << 40))
            refused.endheaders()
            said = refused.getresponse()
            assert said.status == 413 and said.getheader("x-request-id") and "bytes" in said.read().decode()
            chunked = s.connect()
            chunked.putrequest("POST", "/v1/chat/completions")
            chunked.putheader("Content-Type", "application/json")
            chunked.putheader("Transfer-Encoding", "chunked")
            chunked.endheaders()
            piece = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
            try:
                for _ in range(9):
                    chunked.send(piece)
            except OSError:
                pass
            said = chunked.getresponse()
            assert said.status == 413, said.status
            # Who does not trust the certificate, or speaks HTTP, gets nothing; nobody else notices.
            for context in (ssl.create_default_context(), ssl.create_default_context(cafile=other[0])):
                try:
                    socket_of = context.wrap_socket(socket.create_connection(("127.0.0.1", c.port), timeout=20 * SCALE), server_hostname="127.0.0.1")
                    raise AssertionError(socket_of)
                except ssl.SSLCertVerificationError:
                    pass
            with socket.create_connection(("127.0.0.1", c.port), timeout=20 * SCALE) as plain:
                plain.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
                try:
                    assert b"HTTP/1" not in plain.recv(1000)
                except ConnectionResetError:
                    pass
            # Who says a part of a handshake, or all of his part and nothing more, costs nothing.
            hello = hello_of(certificate)
            halves = [socket.create_connection(("127.0.0.1", c.port), timeout=60 * SCALE) for _ in range(20)]
            for i, half in enumerate(halves):
                half.sendall(hello if i % 2 else hello[:len(hello) // 2])
            assert s.ask("/v1/models").status == 200
            used, began = s.seconds(), time.monotonic()
            time.sleep(1)
            used, took = s.seconds() - used, time.monotonic() - began
            assert used < took / 5, f"{used:.2f} s of processor time in {took:.1f} s"
            # What it says in pieces is put together.
            slow = socket.create_connection(("127.0.0.1", c.port), timeout=60 * SCALE)
            came, said = ssl.MemoryBIO(), ssl.MemoryBIO()
            client = ssl.create_default_context(cafile=certificate).wrap_bio(came, said, server_hostname="127.0.0.1")
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    for byte in said.read():
                        slow.sendall(bytes([byte]))
                    came.write(slow.recv(65536))
            client.write(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
            for byte in said.read():
                slow.sendall(bytes([byte]))
            reply = b""
            while b"\r\n\r\n" not in reply:
                came.write(slow.recv(65536))
                try:
                    reply += client.read(65536)
                except ssl.SSLWantReadError:
                    pass
            assert reply.startswith(b"HTTP/1.1 200"), reply
            # hpctl, with a context that knows the certificate and with the variable that names it.
            context = os.path.join(c.env["HP_CONFIG_DIR"], "contexts", "local.json")
            with open(context) as f:
                known = json.load(f)
            known["http"] = f"https://127.0.0.1:{c.port}"
            with open(context, "w") as f:
                json.dump(known, f)
            run = ("run", "demo", "What is the capital of Cuba?", "--temperature", "0")
            done = c.run(*run)
            assert done.returncode != 0 and "HP_CA_FILE" in done.stderr, done
            c.env["HP_CA_FILE"] = certificate
            assert "Havana" in c.run(*run).stdout
            c.env["HP_CA_FILE"] = other[0]
            assert c.run(*run).returncode != 0
            del c.env["HP_CA_FILE"]
            with open(context, "w") as f:
                json.dump(dict(known, http_ca=certificate), f)
            assert "Havana" in c.run(*run).stdout
            load = c.run("load", "demo", "--rate", "10", "--seconds", "1", "-o", "json")
            assert load.returncode == 0, load.stderr
            # It ends as ever, whoever is in the midst of a handshake.
            halves.append(socket.create_connection(("127.0.0.1", c.port), timeout=60 * SCALE))
            halves[-1].sendall(hello)
            assert halves[-1].recv(1)
            s.process.terminate()
            assert s.process.wait(60 * SCALE) == 0
        program = os.path.join(BUILD, "hp-coordinator")
        files = ["--dir", os.path.join(c.folder, "alone"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        for more, says in ((["--http-cert", certificate], "go together"), (["--http-cert", certificate, "--http-key", other[1]], "no certificate and its key"),
                           (["--http-cert", "/nowhere", "--http-key", key], "/nowhere"), (["--http-cert", __file__, "--http-key", key], "no certificate and its key")):
            done = subprocess.run([program, *files, *more], capture_output=True, text=True, timeout=20 * SCALE)
            assert done.returncode != 0 and says in done.stderr, (more, done)
        begun = c.run("cluster", "init", "--name", "home", "--dir", os.path.join(c.folder, "home"), "--http-cert", certificate, "--http-key", key)
        assert f"--http-cert {certificate} --http-key {key}" in begun.stdout, begun
        with open(os.path.join(c.env["HP_CONFIG_DIR"], "contexts", "home.json")) as f:
            home = json.load(f)
        assert home["http"].startswith("https://") and home["http_ca"] == certificate, home


@test
def a_renewed_certificate_is_served_without_a_restart():
    with Cluster(agents=1, cores=1) as c:
        first, second = pair_make(c.folder, "first"), pair_make(c.folder, "second")
        served = [shutil.copy(file, os.path.join(c.folder, "served" + os.path.splitext(file)[1])) for file in first]

        def renew(file, with_what):
            shutil.copy(with_what, file + ".new")
            os.replace(file + ".new", file)

        def shown():
            return ssl.get_server_certificate(("127.0.0.1", c.port), timeout=20 * SCALE).strip()

        def said():
            with open(s.log.name) as f:
                return [line.split()[3] for line in f if " gateway certificate_" in line]

        def text(file):
            with open(file) as f:
                return f.read().strip()

        with Secured(c, *served) as s:
            s.certificate = first[0]
            open_one = s.connect()
            assert s.ask("/health", None, open_one).read() and shown() == text(first[0])
            renew(served[0], second[0])  # its key is not there yet
            assert shown() == shown() == text(first[0])
            renew(served[1], second[1])
            assert shown() == text(second[0])
            assert s.ask("/health", None, open_one).status == 200  # as it was
            s.certificate = second[0]
            assert s.ask("/health").status == 200
            os.remove(served[0])
            assert shown() == text(second[0])
            for turn in range(20):  # those in the midst of a handshake keep what they began with
                pair = (first, second)[turn % 2]
                half = socket.create_connection(("127.0.0.1", c.port), timeout=60 * SCALE)
                half.sendall(hello_of(pair[0]))
                for i in (0, 1):
                    renew(served[i], pair[i])
                assert shown() == text(pair[0]), turn
                half.close()
            assert said()[:3] == ["certificate_kept", "certificate_renewed", "certificate_kept"] and said().count("certificate_renewed") == 21, said()


main()
