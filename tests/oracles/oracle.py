"""What the oracles share: real programs from npm in a cache outside of the repository, and a server that stands for a model."""
import http.server, json, os, shutil, subprocess, sys, threading
from pathlib import Path

CACHE = Path(os.environ.get("HOMING_ORACLES", Path.home() / ".cache/homing-oracles"))


class Skipped(Exception):
    """The reason why an oracle cannot be asked here."""


def skip(why):
    print(f"skipped: {why}")
    sys.exit(0)


def install(package, program, version):
    """Installs a package once and returns its program."""
    if shutil.which("npm") is None:
        raise Skipped("npm is not installed")
    folder = CACHE / f"{package.replace('/', '+')}@{version}"
    path = folder / "node_modules/.bin" / program
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", folder, f"{package}@{version}"]
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode != 0 or not path.exists():
            shutil.rmtree(folder, ignore_errors=True)
            raise Skipped(f"npm cannot install {package}@{version}: {made.stderr.strip()[-200:]}")
    return path


class FakeModel:
    """Refuses every request and keeps it, so that a program shows what it would send, without a key and without a network."""

    def __init__(self):
        requests = self.requests = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode("utf-8", "replace")
                requests.append(body)
                answer = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": "oracle", "code": 400}}).encode()
                self.send_response(400)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def said(self):
        return "\n".join(self.requests)
