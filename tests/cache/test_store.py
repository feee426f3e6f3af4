"""Files of the cache: what is written is read again or not at all; who may have written it; how many may stay."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tileir.cache import store as store_module
from tileir.cache.store import PREFIX, Store

BODY = bytes(range(256)) * 5


def key(number: int) -> str:
    return f"{number:064x}"


class Said(list[str]):
    def __call__(self, message: str) -> None:
        self.append(message)


def make(directory: Path, limit: int = 1 << 20) -> tuple[Store, Said]:
    said = Said()
    return Store(directory, limit, said), said


def test_what_is_put_is_got_by_every_process(tmp_path: Path) -> None:
    store, said = make(tmp_path / "a" / "b")
    assert store.get(key(1)) is None and not store.has(key(1)) and not (tmp_path / "a").exists()
    assert store.put(key(1), BODY) and store.has(key(1))
    assert store.get(key(1)) == BODY == make(tmp_path / "a" / "b")[0].get(key(1))
    assert store.get(key(2)) is None
    assert [e.key for e in store.entries()] == [key(1)]
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a" / "b" / key(1)).stat().st_mode & 0o077 == 0
    assert not said
    with pytest.raises(ValueError):
        store.put("../escape", b"")


def write(path: Path, data: bytes) -> None:
    """As the store writes: for the user alone."""
    path.write_bytes(data)
    path.chmod(0o600)


def test_every_flipped_bit_is_seen_and_the_entry_removed(tmp_path: Path) -> None:
    """Every bit of the prefix, and bits spread over the body."""
    store, _ = make(tmp_path)
    store.put(key(1), BODY)
    path = tmp_path / key(1)
    good = path.read_bytes()
    body = random.Random(1).sample(range(8 * PREFIX.size, 8 * len(good)), 200)
    for bit in [*range(8 * PREFIX.size), *body]:
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        write(path, bytes(bad))
        assert len(list(store.damaged())) == 1
        assert store.get(key(1)) is None and not path.exists(), bit
    for length in (0, 1, PREFIX.size - 1, PREFIX.size, len(good) - 1):
        write(path, good[:length])
        assert store.get(key(1)) is None and not path.exists(), length
    write(path, good + b"\0")
    assert store.get(key(1)) is None
    write(path, good)
    assert store.get(key(1)) == BODY


def test_an_entry_under_another_name_is_damaged(tmp_path: Path) -> None:
    store, _ = make(tmp_path)
    store.put(key(1), BODY)
    (tmp_path / key(1)).rename(tmp_path / key(2))
    assert store.get(key(2)) is None and not store.entries()


def test_links_and_directories_are_no_entries(tmp_path: Path) -> None:
    store, _ = make(tmp_path / "cache")
    store.put(key(1), BODY)
    (tmp_path / "cache" / key(1)).rename(tmp_path / "outside")
    (tmp_path / "cache" / key(1)).symlink_to(tmp_path / "outside")
    assert store.get(key(1)) is None and (tmp_path / "outside").exists()
    os.mkfifo(tmp_path / "cache" / key(2))
    assert store.get(key(2)) is None
    (tmp_path / "cache" / key(3)).mkdir()
    assert store.get(key(3)) is None and not store.entries()


def test_entries_that_others_can_write_are_not_believed(tmp_path: Path) -> None:
    store, _ = make(tmp_path)
    store.put(key(1), BODY)
    (tmp_path / key(1)).chmod(0o622)
    assert store.get(key(1)) is None


def test_least_recently_used_entries_go(tmp_path: Path) -> None:
    store, said = make(tmp_path, limit=20_000)
    size = PREFIX.size + len(BODY)
    fits = 20_000 // size
    for i in range(fits):
        store.put(key(i), BODY)
        os.utime(tmp_path / key(i), (i, i))
    assert store.get(key(0)) == BODY  # used now: the next one is the oldest
    for i in range(fits, fits + 3):
        assert store.put(key(i), BODY)
    kept = {e.key for e in store.entries()}
    assert sum(e.size for e in store.entries()) <= 20_000
    assert key(0) in kept and {key(i) for i in range(fits, fits + 3)} <= kept
    assert key(1) not in kept and key(fits - 1) in kept
    assert not store.put(key(99), bytes(30_000)), "more than the limit is not kept"
    assert not said


def test_the_limit_holds_roughly_with_several_writers(tmp_path: Path) -> None:
    stores = [make(tmp_path, limit=50_000)[0] for _ in range(4)]
    for i in range(200):
        stores[i % 4].put(key(i), BODY)
    assert sum(e.size for e in stores[0].entries()) <= 50_000 * 1.25


def test_abandoned_temporary_files_go(tmp_path: Path) -> None:
    store, _ = make(tmp_path)
    old, fresh = tmp_path / ".new-1-aa", tmp_path / ".new-2-bb"
    for path in (old, fresh):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 4000,) * 2)
    store.put(key(1), BODY)
    assert not old.exists() and fresh.exists()
    foreign = tmp_path / "notes.txt"
    foreign.write_text("mine")
    assert store.clear().count == 2 and not fresh.exists() and foreign.exists()


def test_a_full_disk_is_one_message_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, said = make(tmp_path)
    store.put(key(1), BODY)

    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in ("write", "fsync"):
        with monkeypatch.context() as m:
            m.setattr(store_module.os, name, full)
            assert not store.put(key(2), BODY)
    assert store.get(key(1)) == BODY and store.get(key(2)) is None
    assert len(set(said)) == 1 and "No space left on device" in said[0]
    assert [p.name for p in tmp_path.iterdir()] == [key(1)]


LIMITED = """
import resource, signal, sys
from pathlib import Path
from tileir.cache.store import Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
print(Store(Path(sys.argv[1]), 1 << 20, lambda m: print("said", m)).put("a" * 64, bytes(5000)))
"""


def test_a_real_limit_of_file_sizes(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "File too large" in done.stdout and done.stdout.endswith("False\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("mount") is None, reason="only root can mount")
def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """A file system of 64 KiB: what fits is kept, what does not is one message, and what is there stays readable."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        store, said = make(tmp_path)
        written = [store.put(key(i), bytes([i]) * 10_000) for i in range(20)]
        assert any(written) and not all(written)
        for i, done in enumerate(written):
            assert store.get(key(i)) == (bytes([i]) * 10_000 if done else None)
        assert len(set(said)) == 1 and "No space left on device" in said[0]
        assert list(store.damaged()) == [] and not list(tmp_path.glob(".new-*"))
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


UNPRIVILEGED = """
import os, sys
from pathlib import Path
from tileir.cache.store import Store
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
store = Store(Path(sys.argv[1]), 1 << 20, lambda m: print("said", m))
print("get", store.get("a" * 64), "put", store.put("b" * 64, b"new"))
"""


def test_a_directory_that_is_only_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Run as another user where the tests run as root, who may write everywhere."""
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        cache = Path(root) / "cache"
        store, _ = make(cache)
        assert store.put("a" * 64, b"old")
        if os.getuid() == 0:
            for path in (Path(root), cache, cache / ("a" * 64)):
                os.chown(path, 65534, 65534)
        cache.chmod(0o500)
        done = subprocess.run([sys.executable, "-c", UNPRIVILEGED, str(cache)], capture_output=True, text=True)
        cache.chmod(0o700)
    assert "get b'old' put False" in done.stdout, done.stderr
    assert "cannot be written: Permission denied" in done.stdout


def test_directories_that_others_can_change_are_refused(tmp_path: Path) -> None:
    base = tmp_path / "base"
    for directory in (base, base / "cache"):
        directory.mkdir(mode=0o700)
    store, said = make(base / "cache")
    assert store.put(key(1), BODY)
    for directory, mode in ((base / "cache", 0o770), (base / "cache", 0o707), (base, 0o777), (base, 0o720)):
        before = directory.stat().st_mode & 0o7777
        directory.chmod(mode)
        said.clear()
        assert store.get(key(1)) is None and not store.put(key(2), BODY) and not store.entries()
        assert all("others may write to" in m and f"{mode:04o}" in m and "chmod go-w" in m for m in said) and said
        directory.chmod(before)
    base.chmod(0o1777)  # as /tmp: nobody else can rename what is in it
    assert store.get(key(1)) == BODY


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_directories_and_links_of_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    store, said = make(tmp_path / "cache")
    os.chown(tmp_path / "cache", 65534, 65534)
    assert not store.put(key(1), BODY) and "belongs to user 65534" in said[0]
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(own)
    store, said = make(tmp_path / "link" / "cache")
    assert store.put(key(1), BODY) and (own / "cache" / key(1)).exists()
    os.chown(tmp_path / "link", 65534, 65534, follow_symlinks=False)
    assert store.get(key(1)) is None and "the link" in said[0] and "belongs to user 65534" in said[0]


def test_strange_paths(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("missing")
    (tmp_path / "up").symlink_to("../" + tmp_path.name)
    for name in ("file", "file/x", "loop", "loop/x"):
        store, said = make(tmp_path / name)
        assert not store.put(key(1), BODY) and store.get(key(1)) is None and said, name
    for name in ("nowhere/cache", "up/up/cache", "a/../cache"):
        (tmp_path / "a").mkdir(mode=0o700, exist_ok=True)
        store, said = make(tmp_path / name)
        assert store.put(key(1), BODY) and store.get(key(1)) == BODY and not said, name


HOLDER = """
import sys, time
from pathlib import Path
from tileir.cache.store import Store
with Store(Path(sys.argv[1]), 1 << 20, print).alone("a" * 64) as waited:
    print(waited, flush=True)
    time.sleep(1000)
"""


def held(directory: Path) -> subprocess.Popen[str]:
    """A process that makes an entry and never is done."""
    child = subprocess.Popen([sys.executable, "-c", HOLDER, str(directory)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "False\n"
    return child


def test_who_makes_an_entry_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, said = make(tmp_path)
    with store.alone("a" * 64) as waited:
        assert not waited
    assert list(tmp_path.iterdir()) == []
    child = held(tmp_path)
    try:
        threading.Timer(0.3, lambda: store.put("a" * 64, BODY)).start()
        with store.alone("a" * 64) as waited:
            assert waited and store.get("a" * 64) == BODY
        with store.alone("b" * 64) as waited:
            assert not waited, "other entries are not waited for"
        store.discard("a" * 64)
        monkeypatch.setattr(store_module, "LONGEST_WAIT", 0.1)
        with store.alone("a" * 64) as waited:
            assert waited and store.get("a" * 64) is None, "nobody waits for ever"
        monkeypatch.setattr(store_module, "LONGEST_WAIT", 60.0)
        threading.Timer(0.3, child.kill).start()
        with store.alone("a" * 64) as waited:
            assert waited, "the dead are not waited for"
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()
    assert list(tmp_path.iterdir()) == [] and not said


def test_where_locks_do_not_work_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(store_module.fcntl, "flock", unsupported)
    store, said = make(tmp_path)
    with store.alone("a" * 64) as waited:
        assert not waited
    assert not said


WRITER = """
import random, sys
from pathlib import Path
from tileir.cache.store import Store
store, r = Store(Path(sys.argv[1]), 1 << 22, print), random.Random(int(sys.argv[2]))
print("ready", flush=True)
while True:
    n = r.randrange(20)
    store.put(f"{n:064x}", bytes([n]) * r.randrange(1, 300_000))
"""


def test_killed_writers_leave_nothing_half_written(tmp_path: Path) -> None:
    """SIGKILL at random times; after each one every entry holds what some writer meant to write."""
    chance = random.Random(7)
    store, said = make(tmp_path, 1 << 22)
    for run in range(15):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(run)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(chance.random() * 0.03)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert list(store.damaged()) == []
        for entry in store.entries():
            body = store.get(entry.key)
            assert body and set(body) == {int(entry.key, 16)}
    for path in tmp_path.glob(".new-*"):
        os.utime(path, (0, 0))
    store.put(key(99), BODY)
    assert not list(tmp_path.glob(".new-*")) and not said
