"""`whygrad run` against python itself: same output, same last words, same exit code."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from command_helpers import run_python

PROGRAMS = {
    "what the program finds": """
        '''A docstring.'''
        import __main__, os, sys
        print({key: value for key, value in globals().items() if key != "__loader__"})
        print(type(__loader__), __loader__.name, __loader__.path)
        print(__main__.__dict__ is globals(), sys.argv, sys.path, os.getcwd())
        x: int = 1
        print(__annotations__)
    """,
    "standard input": "print(input(), input())",
    "a caught exception and its context": """
        import sys, traceback
        def deep():
            raise ValueError("deep")
        try:
            try:
                deep()
            except ValueError:
                {}["missing"]
        except KeyError:
            traceback.print_exc()
        print(sys.exc_info(), sys._getframe().f_globals is globals())
    """,
    "a chain of exceptions": """
        import sys, atexit
        atexit.register(lambda: print(sys.last_value, sys.last_traceback.tb_frame.f_code.co_name))
        def cause():
            raise ValueError("cause")
        try:
            cause()
        except ValueError as error:
            raise RuntimeError("effect") from error
    """,
    "an exception group": """
        try:
            1 / 0
        except ZeroDivisionError as error:
            raise ExceptionGroup("several", [error, KeyError("k")])
    """,
    "a syntax error": "x = 1\nif x:\n    print('never'\n",
    "a wrong indent": "def f():\nreturn 1\n",
    "a syntax error in an import": """
        open("broken.py", "w").write("a b")
        import broken
    """,
    "a syntax warning": "print(1 is 1)",
    "warnings": """
        import warnings
        warnings.warn("old", DeprecationWarning)
        warnings.warn("odd")
    """,
    "no exit code": "import sys; sys.exit()",
    "a number": "import sys; sys.exit(3)",
    "a number beyond a byte": "import sys; sys.exit(259)",
    "a negative number": "raise SystemExit(-1)",
    "a truth value": "raise SystemExit(True)",
    "words": "import sys; sys.exit('these are words')",
    "a tuple": "import sys; sys.exit(('a', 1))",
    "exit without a word to anyone": "import os; os._exit(7)",
    "an interrupt": """
        import atexit, sys
        atexit.register(lambda: print("at exit", repr(sys.last_value), sys.excepthook))
        raise KeyboardInterrupt
    """,
    "exit handlers": """
        import atexit
        atexit.register(lambda: print("handler", __name__, "__file__" in globals()))
        class Last:
            def __del__(self):
                print("deleted")
        last = Last()
        print("main")
    """,
    "a local that dies with the main function": """
        import atexit, sys
        class Local:
            def __del__(self):
                print("deleted")
        def main():
            local = Local()
            sys.exit(4)
        atexit.register(lambda: print("handler"))
        main()
    """,
    "a thread that outlives the main code": """
        import threading, time
        def work():
            time.sleep(0.05)
            print("thread", __name__)
        threading.Thread(target=work).start()
        print("main")
    """,
    "an exception in a thread": """
        import threading
        thread = threading.Thread(target=lambda: 1 / 0, name="T")
        thread.start()
        thread.join()
    """,
    "pickles": """
        import pickle
        class Point:
            def __init__(self, x):
                self.x = x
        data = pickle.dumps(Point(3))
        print(b"__main__" in data, pickle.loads(data).x)
    """,
    "processes": """
        import multiprocessing
        print("level", __name__, flush=True)
        class Point:
            def __init__(self, x):
                self.x = x
        def double(point):
            return Point(point.x * 2)
        if __name__ == "__main__":
            for method in ("spawn", "fork"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(method, [point.x for point in pool.map(double, [Point(1), Point(2)])])
    """,
    "a fork that comes back": """
        import os, sys
        child = os.fork()
        if child == 0:
            print("child", flush=True)
            sys.exit(5)
        print("parent", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """,
    "a hook of its own": """
        import sys
        def hook(kind, value, tb):
            print("hook", kind, value, tb is value.__traceback__, tb.tb_lineno, sys.exc_info())
        sys.excepthook = hook
        raise ValueError("seen by the hook")
    """,
    "a hook that fails": """
        import sys
        def hook(kind, value, tb):
            raise KeyError("hook")
        sys.excepthook = hook
        raise ValueError("original")
    """,
    "a hook that exits": """
        import sys
        sys.excepthook = lambda *_: sys.exit("from the hook")
        raise ValueError("original")
    """,
    "no hook": "import sys; del sys.excepthook; raise ValueError('unhooked')",
    "its own source": """
        import inspect
        def shown():
            return 1
        print(inspect.getsource(shown))
    """,
    "no future but its own": "def f(x: int): ...\nprint(f.__annotations__)",
    "a closed stdout": "import sys; print('x'); sys.stdout.close()",
    "no stderr": "import sys; sys.stderr = None; sys.exit('unheard')",
}


def check(*command: str, merged: bool = False, cwd: str | Path | None = None) -> str:
    """Assert that python and whygrad agree on the command; what they print."""
    options = {"input": "one\ntwo\n", "cwd": cwd, "merged": merged}
    expected = run_python(*command, **options)
    assert run_python("-m", "whygrad", "run", "-q", *command, **options) == expected
    return expected[1] + expected[2]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_script(name: str, program: Callable[..., str]) -> None:
    check(program(PROGRAMS[name]), "--flag", "-h", "--", "--json", "x y")


def test_streams_in_order(program: Callable[..., str]) -> None:
    script = program("""
        import sys
        print("out")
        print("err", file=sys.stderr)
        raise ValueError
    """)
    assert check(script, merged=True).startswith("err\nout\nTraceback")
    assert check("-m", "prog", merged=True).startswith("err\nTraceback")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8-sig"])
def test_a_source_encoding(encoding: str, program: Callable[..., str]) -> None:
    cookie = "# -*- coding: latin-1 -*-\n" if encoding == "latin-1" else ""
    source = cookie + "print(ascii('é'))\nraise ValueError('é')"
    assert r"'\xe9'" in check(program(source, encoding=encoding))


def test_a_script_elsewhere(tmp_path: Path, program: Callable[..., str]) -> None:
    program("import helper, sys; print(sys.path[0], sys.argv, __file__)", "deep/er/prog.py")
    program("print('helped')", "deep/er/helper.py")
    (tmp_path / "hop.py").symlink_to("deep/er/prog.py")
    (tmp_path / "link.py").symlink_to("hop.py")
    assert "helped" in check("link.py")
    assert "helped" in check("er/prog.py", cwd=tmp_path / "deep")
    assert "helped" in check(str(tmp_path / "deep" / "er" / "prog.py"))


def test_a_module_in_a_package(program: Callable[..., str]) -> None:
    program("import sys; print('init', sys.argv)", "pkg/__init__.py")
    program("value = 3", "pkg/sibling.py")
    program(
        """
        import sys
        from .sibling import value
        print(__name__, __package__, __spec__.name, __file__, __cached__, sys.argv, sys.path)
        raise ValueError(value)
        """,
        "pkg/mod.py",
    )
    program("from .sibling import value; print(__name__, __package__, value)", "pkg/__main__.py")
    said = check("-m", "pkg.mod", "--json", "x")
    assert "ValueError: 3" in said
    assert "_run_module_as_main" in said
    assert "__main__ pkg 3" in check("-m", "pkg")
    check("-mpkg.mod")


def test_a_module_that_is_interrupted(program: Callable[..., str]) -> None:
    program("raise KeyboardInterrupt")
    assert "KeyboardInterrupt" in check("-m", "prog")


@pytest.mark.parametrize("container", ["folder", "archive.zip"])
def test_a_container(container: str, tmp_path: Path, program: Callable[..., str]) -> None:
    source = "import sys, helper; print(__name__, __file__, __spec__.name, sys.argv, sys.path[0])"
    program(source + "; helper.fail()", "folder/__main__.py")
    program("def fail():\n    raise ValueError('in the container')", "folder/helper.py")
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        for file in ("__main__.py", "helper.py"):
            archive.write(tmp_path / "folder" / file, file)
    assert "in the container" in check(container, "argument")


def test_a_compiled_script(program: Callable[..., str]) -> None:
    import py_compile

    program("print(__name__, __file__, type(__loader__))")
    py_compile.compile("prog.py", "prog.pyc")
    assert "SourcelessFileLoader" in check("prog.pyc")


def test_safe_path(program: Callable[..., str]) -> None:
    script = program("import sys; print(sys.path)")
    expected = run_python("-P", script)
    assert run_python("-P", "-m", "whygrad", "run", "-q", script) == expected


def test_nobody_reads_stdout(program: Callable[..., str]) -> None:
    script = program("print('x' * 100_000)")

    def with_broken_pipe(*command: str) -> tuple[int, str]:
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            [sys.executable, *command], stdout=write, stderr=subprocess.PIPE, text=True, check=False
        )
        os.close(write)
        return done.returncode, done.stderr

    expected = with_broken_pipe(script)
    assert "BrokenPipeError" in expected[1]
    assert with_broken_pipe("-m", "whygrad", "run", "-q", script) == expected
