"""The line that makes another machine a worker, where nothing but Python is installed.

It fetches the worker's program from the server with the invitation's code, which it does not use up, and
starts it; the program exchanges the code. Where a certificate is pinned, the code is sent to nobody else. The
code is in the environment alone, so no list of processes shows it.
"""

from __future__ import annotations

import json
import shlex

from farhand_worker.address import parse
from farhand_worker.invitation import CODE_VARIABLE

PROGRAM = "/api/v1/workers/agent.pyz"
FILE = "farhand-worker.pyz"

_PLAIN = 'import http.client as h,os,re,sys;c=h.HTTPConnection("{host}",{port});'
_TRUSTED = 'import http.client as h,os,re,sys;c=h.HTTPSConnection("{host}",{port});'
_PINNED = (
    "import hashlib,http.client as h,os,re,ssl,sys;"
    "t=ssl.create_default_context();t.check_hostname=False;t.verify_mode=ssl.CERT_NONE;"
    'c=h.HTTPSConnection("{host}",{port},context=t);c.connect();'
    '"sha256:"+hashlib.sha256(c.sock.getpeercert(True)).hexdigest()=="{pin}"'
    ' or sys.exit("this is not the server that sent the invitation: its certificate is another");'
)
_FETCH = (
    'c.request("GET","{path}",headers={{"Authorization":"Invitation "+os.environ["{variable}"]}});'
    "r=c.getresponse();b=r.read();r.status==200 or sys.exit("
    '(re.findall(rb"detail\\": ?\\"(.*?)\\"[,}}]",b)or[b])[0].decode(errors="replace"));'
    'open("{file}","wb").write(b);'
    "os.execv(sys.executable,[sys.executable,{words}]+sys.argv[1:])"
)


def bare_line(code: str, url: str, pin: str) -> str:
    """The line for a machine with Python 3.9 and nothing else; more options may follow it."""
    address = parse(url, insecure=True)
    head = _PINNED if pin else _TRUSTED if address.secure else _PLAIN
    words = ",".join(json.dumps(word) for word in (FILE, "--url", url, *(("--pin", pin) if pin else ())))
    script = head + _FETCH
    script = script.format(
        host=address.host, port=address.port, pin=pin, path=address.base + PROGRAM,
        variable=CODE_VARIABLE, file=FILE, words=words,
    )  # fmt: skip
    return f"{CODE_VARIABLE}={code} python3 -c {shlex.quote(script)}"


def installed_line(code: str, url: str, pin: str) -> str:
    """The line for a machine where farhand-worker is installed; more options may follow it."""
    line = f"{CODE_VARIABLE}={code} farhand-worker --url {shlex.quote(url)}"
    return f"{line} --pin {pin}" if pin else line
