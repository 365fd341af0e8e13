import argparse
import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FLIGHTS = ROOT / "examples" / "flights"
FAKE_DEV = Path(__file__).with_name("fake_dev.py")


@pytest.fixture
def verify(hermes):
    from examples.flights import verify

    return verify


def delivery(body, message_id="m", status=200, **changes):
    return {
        "messageId": message_id,
        "status": status,
        "bodySha256": hashlib.sha256(body).hexdigest(),
        "body": body.decode(),
    } | changes


@pytest.fixture
def check(verify, tmp_path, capfd):
    """Runs verify on rows and on what each of some sinks took; its exit code and lines."""

    def run(rows, *sinks, limit=None):
        source = tmp_path / "rows.ndjson"
        source.write_bytes(b"".join(row + b"\n" for row in rows))
        arguments = [str(source)]
        for number, deliveries in enumerate(sinks):
            path = tmp_path / f"{number}.ndjson"
            path.write_text("".join(json.dumps(each) + "\n" for each in deliveries))
            arguments.append(str(path))
        if limit is not None:
            arguments += ["--limit", str(limit)]
        code = verify.main(arguments)
        return code, capfd.readouterr().out.splitlines()

    return run


@pytest.mark.parametrize(("rows", "limit"), [([], None), ([b"a"], 0), ([b"a"], -1)])
def test_there_is_no_verdict_over_no_rows(check, capfd, rows, limit):
    with pytest.raises(SystemExit) as ended:
        check(rows, [], limit=limit)
    assert ended.value.code == 2
    assert "missing" not in capfd.readouterr().out


def test_equal_rows_need_different_messages(check):
    code, lines = check([b"a", b"a"], [delivery(b"a", "1"), delivery(b"a", "1")])
    assert (code, lines[-1]) == (1, "missing 1")
    code, lines = check([b"a", b"a"], [delivery(b"a", "1"), delivery(b"a", "2")])
    assert (code, lines[-1]) == (0, "missing 0")


def test_a_body_that_is_in_no_row_is_wrong_although_none_is_missing(check):
    code, lines = check([b"a"], [delivery(b"a", "1"), delivery(b"x", "2")])
    assert (code, lines[-1]) == (1, "missing 0")
    assert any("in no row: 2: b'x'" in line for line in lines)


def test_a_body_that_is_not_text_is_compared_by_its_bytes(verify, tmp_path):
    sink = tmp_path / "s.ndjson"
    fields = delivery(b"") | {
        "bodyBase64": "/w==",
        "bodySha256": hashlib.sha256(b"\xff").hexdigest(),
    }
    del fields["body"]
    sink.write_text(json.dumps(fields) + "\n")
    assert verify.compare([(1, b"\xff")], sink).missing == []


def test_verify_imports_nothing_of_the_product():
    code = (
        "import sys, runpy\n"
        f"runpy.run_path({str(FLIGHTS / 'verify.py')!r}, run_name='verify')\n"
        "foreign = {n.partition('.')[0] for n in sys.modules} - sys.stdlib_module_names\n"
        "assert foreign <= {'__main__', 'site', 'sitecustomize'}, foreign\n"
    )
    # -S: no site-packages, so that what is not in the standard library cannot be there.
    subprocess.run([sys.executable, "-S", "-c", code], check=True)


def test_the_data_has_the_rows_that_the_readme_names():
    with gzip.open(FLIGHTS / "flights-2013-01.ndjson.gz", "rt") as file:
        origins = [json.loads(line)["origin"] for line in file]
    assert len(origins) == 12_208
    assert set(origins) == {"EWR", "JFK", "LGA"}


def gone(process_id):
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.live
@pytest.mark.parametrize(
    ("mode", "last_line"),
    # Of the first 300 rows 99 are EWR's; each DC loses every fiftieth, for each of three sinks.
    [
        ("sound", "missing 0"),
        ("doubles", "missing 0"),
        ("alters", "missing 900"),
        ("loses", f"missing {3 * (99 // 50 + 201 // 50)}"),
    ],
)
def test_the_demo_tells_a_sound_broker_from_a_faulty_one(
    hermes, tmp_path, capfd, monkeypatch, mode, last_line
):
    from examples.flights import demo

    # What was lost never comes, so that there is no use in waiting for it as long as usual.
    monkeypatch.setattr(demo, "SILENCE_MAX_S", 3.0)
    children = []
    options = argparse.Namespace(limit=300, rate=0, keep=False, compose=None, plain=True)
    try:
        code = demo.demonstrate(options, tmp_path, children, (sys.executable, str(FAKE_DEV), mode))
    finally:
        for child in children:
            child.end()
    lines = capfd.readouterr().out.splitlines()
    assert lines[-1] == last_line
    assert code == (0 if last_line == "missing 0" else 1)
    assert all(gone(child.process.pid) for child in children)


@pytest.mark.live
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_every_process_and_removes_the_folder(number, tmp_path):
    # The demonstration's own `main`, with the stand-in for `hermes dev` and a folder of ours.
    # SIGINT is ignored at its start, as a shell has it for what runs in the background.
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "sys.argv = ['demo', '--keep', '--limit', '20']\n"
        "from examples.flights import demo\n"
        f"demo.demonstrate.__defaults__ = ((sys.executable, {str(FAKE_DEV)!r}, 'sound'),)\n"
        "sys.exit(demo.main())\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("Ctrl-C ends"):
                    break
            children = children_of(process.pid)
            process.send_signal(number)
            code = process.wait(30)
        finally:
            process.kill()
    assert code == 130
    assert len(children) == 2
    assert all(gone(child) for child in children)
    assert list(tmp_path.iterdir()) == []


def children_of(process_id):
    text = Path(f"/proc/{process_id}/task/{process_id}/children").read_text()
    return [int(each) for each in text.split()]
